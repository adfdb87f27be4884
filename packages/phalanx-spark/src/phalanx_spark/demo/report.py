"""What the demo did and found, for machines. Milliseconds are counted from a kill."""

from __future__ import annotations

import msgspec

from phalanx.common.ids import MemberId


class MemberListSeen(msgspec.Struct, frozen=True):
    """A member list as all living members had it; `lines` as they log it."""

    size: int
    version: int
    lines: list[str]


class MapResult(msgspec.Struct):
    """One file and the map that it became. `rows`: in the file."""

    name: str
    rows: int
    write_s: float
    read_s: float = 0.0
    rows_read: int = 0
    equal: bool = False


class Fall(msgspec.Struct, frozen=True):
    """A member that was killed, which `owned` so many of the `partitions`, and when what `STEPS` says had happened."""

    member: MemberId
    owned: int
    partitions: int
    was_master: bool
    member_list: MemberListSeen
    list_ms: int
    owners_ms: int
    write_ms: int
    redundant_ms: int


STEPS = {
    "list_ms": "the others agree on a list without it",
    "owners_ms": "every partition has a living owner again",
    "write_ms": "the first write is acknowledged again for a key of the dead member",
    "redundant_ms": "backups are rebuilt: every partition has all its replicas",
}
"""Field of a `Fall` to what happened then."""


class WriterResult(msgspec.Struct, frozen=True):
    """What was acknowledged to the writer, and what is there. `repeated`: writes that were sent again because their outcome was unknown."""

    acknowledged: int
    keys: int
    repeated: int
    missing: int
    wrong: int


class QuestionResult(msgspec.Struct, frozen=True):
    """Whether both sides answer alike, and for people a `sample`: airline, and mean delay by wind speed."""

    groups: int
    equal: bool
    sample: list[list[str]]


class DemoReport(msgspec.Struct):
    """The whole demo. `ms_to_…`: the longest of all falls, None if there was none; `differences`: what did not hold.

    `spark_start_s`: until Java, and Spark's Python processes that write and read, had started. Of `seconds`, which are all.
    `rows_per_s_…`: without the first map, with which those processes start.
    """

    ok: bool = False
    members: int = 0
    killed: int = 0
    partitions: int = 0
    backup_count: int = 0
    member_list: MemberListSeen | None = None
    maps: list[MapResult] = []
    falls: list[Fall] = []
    writer: WriterResult | None = None
    question: QuestionResult | None = None
    rows: int = 0
    rows_per_s_in: int = 0
    rows_per_s_out: int = 0
    ms_to_write: int | None = None
    ms_to_redundancy: int | None = None
    differences: list[str] = []
    spark_start_s: float = 0.0
    seconds: float = 0.0
