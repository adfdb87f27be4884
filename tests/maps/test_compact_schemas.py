"""Schemas that a caller lacks: fetched by their ids, many at once where a value needs many, and never more often than that."""

from collections.abc import Callable
from typing import Any

import pytest

from phalanx.codec import compact
from phalanx.codec.compact import from_any_data
from phalanx.codec.compact_schemas import CompactSchema
from phalanx.codec.values import to_data
from phalanx.common.errors import CorruptDataError, ErrorCode, UnknownSchema
from phalanx.maps.compact_schemas import FETCHED_ALONE, read_again
from support.played_cluster import PlayedCluster, table

UNAVAILABLE = ErrorCode.UNAVAILABLE


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "_KNOWN", compact._Registry(1000))


def key(schema: CompactSchema) -> bytes:
    return to_data(schema.id)


class SchemaGrid(PlayedCluster):
    """A cluster with these schemas."""

    def __init__(self, *schemas: CompactSchema) -> None:
        super().__init__(table("A", "B", "C"))
        self.stored = {key(schema): schema.stored for schema in schemas}

    def told(self, request: Any) -> str:
        return type(request).__name__


def chain(count: int) -> tuple[bytes, list[CompactSchema]]:
    """An object in another one, and so on, each of a type of its own; and the schemas from the outer one on."""
    schemas = [CompactSchema(f"type-{place}", [("inner", 29)]) for place in range(count)]
    data = b""
    for schema in reversed(schemas):
        size = len(data)
        position = b"\0" if data else b"\xff"
        data = schema.id.to_bytes(8, "big", signed=True) + size.to_bytes(4, "big") + data + position
    return (-55).to_bytes(4, "big", signed=True) + data, schemas


def fetched(cluster: PlayedCluster, data: bytes, read: Callable[[bytes], Any] = from_any_data) -> Any:
    try:
        return read(data)
    except UnknownSchema as error:
        return cluster.play(read_again(cluster, "m", error, lambda: read(data)))


def test_each_schema_is_fetched_once_for_a_process() -> None:
    data, schemas = chain(3)
    cluster = SchemaGrid(*schemas)
    assert fetched(cluster, data) == fetched(cluster, data) == {"inner": {"inner": {"inner": None}}}
    assert [[asked.partition(":")[2] for asked in each] for each in cluster.rounds] == [["GetAll"]] * 3


def test_all_are_fetched_where_a_value_needs_many() -> None:
    data, schemas = chain(FETCHED_ALONE + 12)
    odd = CompactSchema("odd", [("f", 5)])
    cluster = SchemaGrid(*schemas, odd)
    cluster.stored[to_data("not an id")] = to_data("no schema")
    assert fetched(cluster, data)["inner"]["inner"] is not None
    asked = [each.partition(":")[2] for round_ in cluster.rounds for each in round_]
    assert asked[:FETCHED_ALONE] == ["GetAll"] * FETCHED_ALONE
    assert set(asked[FETCHED_ALONE:]) == {"ScanPartition"}


@pytest.mark.parametrize("missing", [0, 1, FETCHED_ALONE, FETCHED_ALONE + 1])
def test_one_that_is_not_in_the_cluster_is_told(missing: int) -> None:
    data, schemas = chain(FETCHED_ALONE + 2)
    lacking = schemas.pop(missing)
    with pytest.raises(UnknownSchema, match=f"map 'm': the schema {lacking.id} .* is not in the cluster") as raised:
        fetched(SchemaGrid(*schemas), data)
    assert raised.value.schema_id == lacking.id


def test_what_is_not_of_its_id_is_none() -> None:
    data, (schema,) = chain(1)
    cluster = SchemaGrid()
    for stored in (CompactSchema("other", schema.fields).stored, to_data("no schema"), b"\xff"):
        cluster.stored[key(schema)] = stored
        with pytest.raises(UnknownSchema, match="is not in the cluster"):
            fetched(cluster, data)


def test_one_whose_objects_nobody_can_read_is_told() -> None:
    odd = CompactSchema("odd", [("f", 5)])
    data = (-55).to_bytes(4, "big", signed=True) + odd.id.to_bytes(8, "big", signed=True)
    with pytest.raises(CorruptDataError, match="field 'f' of kind 5, which no Compact object has"):
        fetched(SchemaGrid(odd), data)


def test_a_schema_that_cannot_be_had_now_does_not_look_as_if_nothing_was_done() -> None:
    """What came with the value may have been a write: an error that says that calling again is safe would be wrong."""
    data, schemas = chain(1)
    cluster = SchemaGrid(*schemas)
    cluster.refusals = dict.fromkeys("ABC", UNAVAILABLE)
    with pytest.raises(
        UnknownSchema, match=r"cannot be fetched now \(.*says no.*\); the call itself was carried out, so only read"
    ):
        fetched(cluster, data)
    cluster.refusals = {}
    assert fetched(cluster, data) == {"inner": None}


def test_a_value_of_more_schemas_than_a_process_may_know_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "_KNOWN", compact._Registry(8))
    data, schemas = chain(FETCHED_ALONE + 12)
    with pytest.raises(UnknownSchema, match="Compact objects of more schemas than a process keeps"):
        fetched(SchemaGrid(*schemas), data)
