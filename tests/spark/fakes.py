"""A grid in this process, in place of a cluster: what the data source asks of a client, and what it was asked."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from phalanx.client.core.two_clusters import check_founders
from phalanx.codec.hashing import partition_of
from phalanx.codec.rows import unpack_rows
from phalanx.codec.values import from_data, from_key_data, to_data, to_key_data
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_schema import read_schema
from phalanx.common.map_settings import MapChange
from phalanx.grid.serving.conditions import wanted_by
from phalanx.wire.conditions import Condition
from phalanx.wire.messages import PackedReply
from phalanx_spark.connector.options import SparkOptions

PARTITIONS = 7


def unpacked(parts: Mapping[int, bytes], of: int) -> tuple[list[bytes], list[bytes]]:
    """The rows of all partitions, each of which must be where it belongs."""
    assert of == PARTITIONS
    keys: list[bytes] = []
    values: list[bytes] = []
    for partition, rows in parts.items():
        some, their = unpack_rows(rows)
        assert {partition_of(key, of) for key in some} == {partition}
        keys += some
        values += their
    return keys, values


class FakeTable:
    """What the data source reads of a partition table."""

    def __init__(self, owners: list[str | None], maps: MapPlan) -> None:
        self._owners, self.maps = owners, maps

    def owners(self) -> list[str | None]:
        return self._owners


class FakeGrid:
    """Maps in a dict, partitions owned by three members, pages of two entries."""

    call_timeout_s = 10.0

    def __init__(self, owners: tuple[str | None, ...] = ("a", "b", "c")) -> None:
        self.maps: dict[str, dict[bytes, bytes]] = {}
        self.owner_names = owners
        self.settings = MapPlan()
        self.calls: list[tuple[Any, ...]] = []
        self.connected: list[SparkOptions] = []
        self.is_open = False
        self.founders: tuple[str, ...] = ("a",)
        self.sent = 0
        """Entries that scans have answered with."""

    def put(self, map_name: str, entries: dict[Any, Any]) -> None:
        """As a Python program would."""
        stored = self.maps.setdefault(map_name, {})
        stored.update({to_key_data(key): to_data(value) for key, value in entries.items()})

    def content(self, map_name: str) -> dict[Any, Any]:
        """As a Python program would see it."""
        return {from_key_data(key): from_data(value) for key, value in self.maps.get(map_name, {}).items()}

    @contextmanager
    def connect(self, options: SparkOptions, founders: Collection[str] = ()) -> Iterator["FakeGrid"]:
        check_founders(options.cluster, founders, self.founders)
        self.connected.append(options)
        self.is_open = True
        yield self
        self.is_open = False

    def schema_of(self, map_name: str) -> str:
        """As SQL writes it; empty: the map has none."""
        text = self.settings.of(map_name).schema
        return str(read_schema(text)) if text else ""

    def set_schema(self, map_name: str, text: str) -> None:
        if text != self.settings.of(map_name).schema:
            self.settings = self.settings.with_change(map_name, MapChange(schema=text))

    def change_schema(self, client: "FakeGrid", map_name: str, wanted: Callable[[str], str]) -> None:
        self.set_schema(map_name, wanted(self.settings.of(map_name).schema))

    # what a client offers

    def partition_table(self) -> FakeTable:
        owners = [self.owner_names[partition % len(self.owner_names)] for partition in range(PARTITIONS)]
        return FakeTable(owners, self.settings)

    @property
    def partition_count(self) -> int:
        return PARTITIONS

    def map(self, name: str) -> "FakeMap":
        return FakeMap(self, name)

    def put_packed(self, map_name: str, parts: Mapping[int, bytes], of: int, ttl_ms: int = 0) -> None:
        keys, values = unpacked(parts, of)
        self.calls.append(("put", map_name, len(keys), ttl_ms))
        self.maps.setdefault(map_name, {}).update(zip(keys, values, strict=True))

    def get_data(self, map_name: str, keys: list[bytes]) -> list[bytes | None]:
        self.calls.append(("get", map_name, len(keys)))
        return [self.maps.get(map_name, {}).get(key) for key in keys]

    def scan_data(
        self, map_name: str, partitions: list[int], of: int | None = None
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        self.calls.append(("scan", map_name, tuple(partitions)))
        for partition in partitions:
            entries = [
                entry
                for entry in self.maps.get(map_name, {}).items()
                if partition_of(entry[0], PARTITIONS) == partition
            ]
            for start in range(0, len(entries), 2):
                page = entries[start : start + 2]
                yield [key for key, _ in page], [value for _, value in page]

    def scan_packed(
        self,
        map_name: str,
        partitions: list[int],
        of: int | None = None,
        key_parts: int = 1,
        conditions: Sequence[Condition] = (),
    ) -> Iterator[PackedReply]:
        wanted = wanted_by(conditions, key_parts)
        for keys, values in self.scan_data(map_name, partitions, of):
            stamped = [(key, bytes(8) + value) for key, value in zip(keys, values, strict=True)]
            found = [entry for entry in stamped if wanted(*entry)]
            parts = [[key for key, _ in found], [value for _, value in found]]
            self.sent += len(found)
            packed = [(b"".join(part), b"".join(len(each).to_bytes(4, "little") for each in part)) for part in parts]
            yield PackedReply(0, *packed[0], *packed[1], False)

    def map_names(self, *, with_empty: bool = False) -> list[str]:
        return sorted(name for name, entries in self.maps.items() if entries or with_empty)


class FakeMap:
    """What tasks do with a map of a client."""

    def __init__(self, grid: FakeGrid, name: str) -> None:
        self.put_packed = partial(grid.put_packed, name)
        self.scan_packed = partial(grid.scan_packed, name)
