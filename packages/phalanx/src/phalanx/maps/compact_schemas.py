"""What a caller does when it meets a Compact object whose schema its process does not know: fetch the schema, and read again.

Only the reading is repeated, never the call that the object came with: that may have been a write. What is to be asked is a
plan (`call_plans`), so that blocking and asyncio programs do the same. What is fetched stays known to the process (`codec.compact`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from phalanx.codec.compact import register
from phalanx.codec.compact_schemas import SCHEMAS, stored_schema
from phalanx.codec.values import to_data
from phalanx.common.errors import CorruptDataError, PhalanxError, UnknownSchema
from phalanx.common.words import quoted
from phalanx.maps.call_plans import FIND_TABLE, CallPlan, RequestNumbers
from phalanx.maps.map_plans import MapPlans

T = TypeVar("T")

FETCHED_ALONE: Final = 8
"""After this many schemas for one value, all others are fetched at once: a value can hold objects of many types."""


def read_again(
    client: RequestNumbers, map_name: str | None, error: UnknownSchema, read: Callable[[], T]
) -> CallPlan[T]:
    """Plan to fetch the schemas that a value lacks, and to read it again. `map_name`: for errors; None: they need no name. `read`:
    reads, and asks nobody.

    Raises `UnknownSchema` if the cluster has no such schema, or does not give it now.
    """
    plans, where = MapPlans(SCHEMAS, client), f"map {quoted(map_name)}: " if map_name is not None else ""
    found: set[int] = set()
    for fetched in range(FETCHED_ALONE + 1):
        lacking = error.schema_id
        try:
            if fetched < FETCHED_ALONE:
                stored = yield from plans.get_data([to_data(lacking)])
            else:
                stored = yield from _fetch_all(plans)
        except PhalanxError as failure:
            why = f"cannot be fetched now ({failure}); the call itself was carried out, so only read again"
            raise UnknownSchema(lacking, f"{where}the schema {lacking} of a Compact object {why}") from failure
        found = _register(stored, lacking)
        if lacking not in found:
            break
        try:
            return read()
        except UnknownSchema as another:
            error = another
    lacking = error.schema_id
    if lacking in found:
        raise UnknownSchema(lacking, f"{where}a value has Compact objects of more schemas than a process keeps")
    raise UnknownSchema(
        lacking,
        f"{where}the schema {lacking} of a Compact object is not in the cluster (in the map {SCHEMAS!r}): restore that map, or let a "
        f"client that has the class store an object of it again",
    )


def _fetch_all(plans: MapPlans) -> CallPlan[list[bytes | None]]:
    """Plan to fetch all schemas of the cluster."""
    count = (yield FIND_TABLE).partition_count
    scan = plans.scan_data(range(count), count)
    found: list[bytes | None] = []
    while (pages := (yield from scan.next_pages())) is not None:
        for page in pages:
            found += page.values
    return found


def _register(stored: Iterable[bytes | None], wanted: int) -> set[int]:
    """Register stored schemas. Return their ids, which their content tells: under which keys they stand does not count. Raises
    `UnknownSchema` if nobody can read objects of the wanted one."""
    found = set()
    for data in stored:
        schema = stored_schema(data)
        if schema is None:
            continue
        try:
            register(schema)
        except CorruptDataError as error:
            if schema.id == wanted:
                raise UnknownSchema(wanted, str(error)) from None
        found.add(schema.id)
    return found
