"""Traces of simulated histories for the audit, clean and with planted faults: events that members never recorded."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from phalanx.common.ids import MemberId
from phalanx.reports.trace_rows import PROCESS_EVENT, TRACE_COLUMNS, TraceRow, TraceWriter
from phalanx.wire.event import Event
from phalanx.wire.view_events import ViewInstalled
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.result import Result
from phalanx_proof.sim.run import run

LATE_MS = 60_000
"""So long after a planted fault somebody still writes: nobody can say that the logs just end too early."""


class Planted:
    """A history, and what is known of its end: for whoever adds to it."""

    def __init__(self, history: str, seed: int | None = None, profile: Profile = Profile.QUIET) -> None:
        """Without a seed: the first one where nothing goes wrong, and there is room for a fault."""
        self._writer = TraceWriter(history)
        played = _rows_of(roomy_seed() if seed is None else seed, profile)
        self._writer.rows = [msgspec.structs.replace(row, history=history, log=history) for row in played]
        self.at = self._writer.rows[-1].at
        last = self._last("ViewInstalled")
        self.view = ViewInstalled(**msgspec.json.decode(last.fields))
        self.members = [MemberId(member) for member in self.view.members]

    @property
    def master(self) -> MemberId:
        return self.members[0]

    def _last(self, event: str) -> TraceRow:
        return [row for row in self._writer.rows if row.event == event][-1]

    def add(self, member: MemberId, event: Event) -> int:
        """The member records this next, a moment later; the line."""
        self.at += 1
        self._writer.record(self.at, member, event)
        return len(self._writer.rows)

    def process(self, member: MemberId, what: str) -> None:
        self.at += 1
        self._writer.record_process(self.at, member, what)

    def wait(self, ms: int = LATE_MS) -> None:
        self.at += ms

    def install(
        self, member: MemberId, version: int, members: Sequence[MemberId], maker: MemberId | None = None
    ) -> int:
        """The member installs a list; of its first member, if no other maker is named."""
        chosen = maker or members[0]
        return self.add(member, ViewInstalled(version, chosen, members[0], tuple(members), "planted"))

    def holders(self, partition: int) -> list[MemberId]:
        """Who holds a partition that has moved, owner first."""
        moved = [msgspec.json.decode(row.fields) for row in self._writer.rows if row.event == "MigrationCommitted"]
        held = [fields["replicas"] for fields in moved if fields["partition"] == partition][-1]
        return [MemberId(member) for member in held if member is not None]

    def rows(self, without: MemberId | None = None) -> list[TraceRow]:
        """All of them; without what one member recorded and what is told of its process."""
        return [row for row in self._writer.rows if row.member != without]


@functools.cache
def _rows_of(seed: int, profile: Profile) -> tuple[TraceRow, ...]:
    writer = TraceWriter("")
    run(draw_options(seed, profile), trace=writer)
    return tuple(writer.rows)


def find_seed(profile: Profile, wanted: Callable[[Result, list[TraceRow]], bool]) -> int:
    """The first seed whose history is as wanted: what a seed draws may change when the core does."""
    for seed in range(100):
        writer = TraceWriter("looked at")
        if wanted(run(draw_options(seed, profile), trace=writer), writer.rows):
            return seed
    raise AssertionError(f"no history of {profile} is as wanted")


def has_sides(result: Result, rows: list[TraceRow]) -> bool:
    """Two masters made lists of several members with one version, a side merged what it had, and no partition was lost."""
    makers: dict[int, set[str]] = {}
    for row in rows:
        if row.event == "ViewInstalled" and len((view := msgspec.json.decode(row.fields))["members"]) > 1:
            makers.setdefault(view["view_version"], set()).add(view["maker"])
    merged = result.events.get("MergeEnded", 0)
    return max(map(len, makers.values())) > 1 and merged > 0 and not result.counts.get("lost partitions")


def has_crashes(result: Result, rows: list[TraceRow]) -> bool:
    """Members crashed, partitions moved, and none was lost."""
    crashed = sum(row.event == PROCESS_EVENT and "crashed" in row.fields for row in rows)
    return crashed > 1 and result.events["MigrationCommitted"] > 50 and not result.counts.get("lost partitions")


@functools.cache
def roomy_seed() -> int:
    """Of a calm history with four members or more, whose partition 0 has moved, and has a backup."""

    def is_roomy(result: Result, rows: list[TraceRow]) -> bool:
        views = [msgspec.json.decode(row.fields)["members"] for row in rows if row.event == "ViewInstalled"]
        moved = [
            fields for row in rows if row.event == "MigrationCommitted" and (fields := msgspec.json.decode(row.fields))
        ]
        held = [fields["replicas"] for fields in moved if fields["partition"] == 0]
        return len(views[-1]) >= 4 and bool(held) and len(held[-1]) > 1

    return find_seed(Profile.QUIET, is_roomy)


Plant = Callable[[Planted], list[TraceRow]]


def write_parquet(rows: Sequence[TraceRow], path: Path) -> None:
    """As a Spark job would write them."""
    columns = {name: [getattr(row, name) for row in rows] for name in TRACE_COLUMNS}
    pq.write_table(pa.table(columns), path)


def write_logs(rows: Sequence[TraceRow], folder: Path, begin: int = 0, cluster: str = "phalanx") -> None:
    """As members write them: one file each, one line an event."""
    folder.mkdir(parents=True, exist_ok=True)
    for row in rows:
        envelope = {
            "at": begin + row.at,
            "cluster": cluster,
            "member": row.member,
            "address": row.address,
            "event": row.event,
        }
        line = msgspec.json.encode(envelope | msgspec.json.decode(row.fields))
        with (folder / f"{row.member.replace('/', '_').replace(':', '_')}.jsonl").open("ab") as file:
            file.write(line + b"\n")
