"""The functions with native versions, beside themselves in Python: `./run bench compiled`.

Pure functions, timed in this process, native and Python in turn; 100 keys of 16 characters, values of 100 bytes. A native
function earns its place with a ratio of at least 1.5.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Annotated, Any
from unittest import mock

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.plan import MAP, make_entries
from benchmarks.redis_commands import make_pipelines, member_of
from phalanx.codec import hashing, native, rows, values
from phalanx.common.clock import STAMP_BYTES
from phalanx.common.errors import UsageError
from phalanx.common.ids import MemberId
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replication import copying, leader
from phalanx.grid.replication.flow_control import CopyFlow
from phalanx.grid.replication.owned_partition import OwnedPartition, Term
from phalanx.grid.service import GridService
from phalanx.grid.serving import many_keys, packing
from phalanx.machine.outbox import Outbox
from phalanx.maps import grouping
from phalanx_protocols.hazelcast import data, frames

ENTRIES = 100
PARTITIONS = 271
LEAST = 1.5
PIPELINED = 64
"""Commands of a Redis client that arrive together."""
CALLS = 500


class Compared(msgspec.Struct):
    """One function: medians of the rounds, for one call."""

    function: str
    python_us: float
    native_us: float
    ratio: float
    """Median of the rounds: Python's time over the native function's."""


def measure_compiled(rounds: int) -> list[Compared]:
    """Time each function in its native version and in Python."""
    keys, contents = make_entries(ENTRIES)
    key_data, value_data = values.keys_to_data(keys), values.values_to_data(contents)
    stored = [bytes(STAMP_BYTES) + value for value in value_data]
    packed = rows.pack_rows(key_data, value_data)
    uneven = rows.pack_rows(key_data, [value[: 20 + place % 60] for place, value in enumerate(value_data)])
    stamp = bytes(STAMP_BYTES)
    stamped = rows.pack_rows(key_data, stored)
    owner_of = [number % 3 for number in range(PARTITIONS)]
    found, indexes = [None] * ENTRIES, [*range(1, ENTRIES), 0]
    entries = dict(zip(key_data, stored, strict=True))
    owned = _owned_partitions(key_data, stored)
    grid = member_of(owned).grid
    message = frames.answer_head(0, 0, is_last=False) + data.entry_frames(key_data, value_data) + frames.LAST_END_FRAME
    cases: dict[str, tuple[ModuleType, Callable[[], Any]]] = {
        "partition_of, of each": (hashing, lambda: [hashing.partition_of(key, PARTITIONS) for key in key_data]),
        "partitions_of": (hashing, lambda: hashing.partitions_of(key_data, PARTITIONS)),
        "keys_to_data, texts": (values, lambda: values.keys_to_data(keys)),
        "keys_to_data, numbers": (values, lambda: values.keys_to_data(range(ENTRIES))),
        "values_to_data, bytes": (values, lambda: values.values_to_data(contents)),
        "values_to_data, texts": (values, lambda: values.values_to_data(keys)),
        "values_from_data, bytes": (values, lambda: values.values_from_data(value_data)),
        "values_from_data, texts": (values, lambda: values.values_from_data(key_data)),
        "entries_from_data": (values, lambda: values.entries_from_data(keys, value_data)),
        "extent_of_items": (rows, lambda: rows.extent_of_items(value_data)),
        "extents_of, all of one size": (rows, lambda: rows.extents_of(packed)),
        "extents_of, of many sizes": (rows, lambda: rows.extents_of(uneven)),
        "without_prefixes": (rows, lambda: rows.without_prefixes(stored, STAMP_BYTES)),
        "pack_rows": (rows, lambda: rows.pack_rows(key_data, value_data)),
        "unpack_rows, all of one size": (rows, lambda: rows.unpack_rows(packed, 0, stamp)),
        "unpack_rows, of many sizes": (rows, lambda: rows.unpack_rows(uneven, 0, stamp)),
        "group_by_owner": (grouping, lambda: grouping.group_by_owner(key_data, value_data, owner_of)),
        "put_at": (grouping, lambda: grouping.put_at(found, indexes, value_data)),
        "next_rows": (copying, lambda: copying.next_rows(entries, key_data, 200, 10_000_000)),
        "greatest_head": (rows, lambda: rows.greatest_head(stamped, STAMP_BYTES)),
        "add_rows": (rows, lambda: rows.add_rows({}, stamped)),
        "page_of_entries": (packing, lambda: packing.page_of_entries(entries, 10_000_000)),
        "whole_message": (frames, lambda: _read(message)),
        "present_frames": (data, lambda: data.present_frames(key_data, value_data)),
        "find_values": (many_keys, lambda: many_keys.find_values(owned, MAP, key_data, 10_000_000, 0)),
        "put_values": (leader, lambda: _put(grid, key_data, value_data, stamp)),
    }
    for name, call in make_pipelines(_owned_partitions([], []), PIPELINED).items():
        cases[name] = leader, call
    return [_compare(name, module, call, rounds) for name, (module, call) in cases.items()]


def _read(message: bytes) -> None:
    """Read a putAll as a member does."""
    reader = frames.MessageReader(10_000_000)
    reader.feed(message)
    reader.next()


def _owned_partitions(keys: list[bytes], stored: list[bytes]) -> list[OwnedPartition | None]:
    """Partitions that one member owns, with these entries."""
    this = MemberId("a:1/1")
    owned = [
        OwnedPartition(Term(number, 1, this), Replica(), CopyFlow(Outbox(this), 1)) for number in range(PARTITIONS)
    ]
    for key, value in zip(keys, stored, strict=True):
        owned[hashing.partition_of(key, PARTITIONS)].replica.map(MAP).put(key, value, 0, 0)
    return list(owned)


def _put(grid: GridService, keys: list[bytes], contents: list[bytes], stamp: bytes) -> None:
    """Store as the handler of put_all does."""
    if not grid.leader.commit_values(MAP, keys, contents, stamp):
        for key, value, partition in zip(keys, contents, hashing.partitions_of(keys, PARTITIONS), strict=True):
            owned = grid.ownership.owned[partition]
            if owned is not None and (store := grid.leader.plain_store(owned, MAP)) is not None:
                grid.leader.commit_plain(owned, store, MAP, key, stamp + value, None, 0)


def _compare(name: str, module: ModuleType, call: Callable[[], Any], rounds: int) -> Compared:
    native_times, python_times = [], []
    for _ in range(rounds):
        native_times.append(_time(call))
        with _in_python(module):
            python_times.append(_time(call))
    ratio = statistics.median(pure / native for pure, native in zip(python_times, native_times, strict=True))
    return Compared(name, statistics.median(python_times), statistics.median(native_times), ratio)


def _time(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - began) / CALLS * 1e6


@contextmanager
def _in_python(module: ModuleType) -> Iterator[None]:
    one_key = mock.patch.object(hashing, "partition_of", hashing.partition_in_python)
    with mock.patch.object(module, "NATIVE", None), one_key:
        yield


def compare_compiled(
    rounds: Annotated[
        int, typer.Option(help="Times that each is measured in its native version and in Python.", min=1)
    ] = 7,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """The functions that phalanx-native compiles, beside the same in Python."""
    if native.NATIVE is None:
        raise UsageError("phalanx-native is not here: ./run setup builds it where there is a C compiler")
    found = measure_compiled(rounds)
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        return
    table = Table(box=SIMPLE_HEAD, title=f"{ENTRIES} entries in a call, medians")
    for heading in ("", "Python, us", "compiled, us", "ratio"):
        table.add_column(heading, justify="right" if heading else "left")
    for each in found:
        mark = "" if each.ratio >= LEAST else " ✗"
        table.add_row(each.function, f"{each.python_us:.1f}", f"{each.native_us:.1f}", f"{each.ratio:.1f}{mark}")
    Console().print(table)
