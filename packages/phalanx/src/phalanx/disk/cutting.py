"""What of a damaged log is a log without damage: all before the damage, if that is complete by itself. Pure (DU-61)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from phalanx.disk.scanning import LogDamage, LogScan, scan
from phalanx.disk.segment_head import HEAD_BYTES, Buffer


class LogCut(NamedTuple):
    """The part of a log before its damage."""

    segments: dict[int, Buffer]
    """By number what is used of the files, as long as they are; zeros stand where the last one is cut."""
    ends: dict[int, int]
    """Of those that are cut: where."""
    found: LogScan
    """What they hold."""


def cut_at_damage(segments: Mapping[int, Buffer | None], store: bytes) -> LogCut | None:
    """Return the part of a log before its damage; None: nothing before it is complete.

    It is not if replicas need records from before the oldest segment that is there: these were removed when the replicas were copied to
    a later part of the log, which is the damaged one, or behind it.
    """
    kept, ends = dict(segments), dict[int, int]()
    while (found := scan(kept, store)).damages:
        kept, ends = _before(found.damages[0], kept, ends)
    used = {number: content for each in found.extents if (content := kept[number := each.segment]) is not None}
    return LogCut(used, {number: end for number, end in ends.items() if number in used}, found) if used else None


def _before(
    damage: LogDamage, kept: Mapping[int, Buffer | None], ends: Mapping[int, int]
) -> tuple[dict[int, Buffer | None], dict[int, int]]:
    """Return the files before damage, and where the last of them is cut. They are less than those that are there each time."""
    number, content = damage.segment, kept.get(damage.segment)
    before = {each: content for each, content in kept.items() if each < number}
    if content is None or not HEAD_BYTES < damage.offset < ends.get(number, len(content)):
        return before, dict(ends)
    rest = bytes(content[: damage.offset]) + bytes(len(content) - damage.offset)
    return before | {number: rest}, {**ends, number: damage.offset}
