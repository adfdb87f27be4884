"""What the demo did and found, for machines; the story for people is told from it, too."""

from __future__ import annotations

import msgspec

from phalanx.common.ids import MemberId


class MemberListSeen(msgspec.Struct, frozen=True):
    """A member list as all living members had it."""

    size: int
    version: int
    lines: list[str]
    """As members log it."""


class MapResult(msgspec.Struct):
    """One file and the map that it became."""

    name: str
    rows: int
    """In the file."""
    write_s: float
    read_s: float = 0.0
    rows_read: int = 0
    equal: bool = False


class Fall(msgspec.Struct, frozen=True):
    """A member that was killed, and how the others went on. Milliseconds since the kill; None: did not happen."""

    member: MemberId
    owned: int
    """Partitions that it owned."""
    partitions: int
    was_master: bool
    member_list: MemberListSeen | None
    list_ms: int | None
    owners_ms: int | None
    """Until every partition had a living owner."""
    write_ms: int | None
    """Until the first write was acknowledged again for a key that the dead member owned."""
    redundant_ms: int | None
    """Until every partition had all its replicas again."""


class WriterResult(msgspec.Struct, frozen=True):
    """What the writer was told, and what is there."""

    acknowledged: int
    """Writes, all of which are checked: a key that was written again must have its last value."""
    keys: int
    repeated: int
    """Writes whose outcome was unknown for a while, and that were sent again."""
    missing: int
    wrong: int


class QuestionResult(msgspec.Struct, frozen=True):
    """Mean arrival delay by airline and wind speed, from the grid and from the files."""

    groups: int
    equal: bool
    sample: list[list[str]]
    """Some rows for people: airline, wind, mean delay, flights."""


class Report(msgspec.Struct):
    """The whole demo."""

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
    """The longest of all falls."""
    ms_to_redundancy: int | None = None
    differences: list[str] = []
    """What did not hold; empty if all did."""
    seconds: float = 0.0
