"""The story of the cluster: events in words, of this process and, as far as they were told, of other members.

This process remembers its own last events, from its start. Others are asked for the decisions that they remember, when a
console is opened and while one is open; so what a member decided that has died since is known if it was asked before. All
of it is bounded.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from itertools import count
from typing import Any, Final

import msgspec

from phalanx.common.ids import MemberId, address_of, may_be_member
from phalanx.http.console.story_lines import KnownEvent, StoryLines
from phalanx.http.metric_families import EventMemory
from phalanx.reports.event_words import group_of, sentence_of
from phalanx.rules import words_of
from phalanx.wire.messages import HistoryReply

MOST: Final = 1_500
MOST_OF_PARTITIONS: Final = 1_500
MOST_CHARACTERS: Final = 600
"""The most of a sentence or a reason that is told."""
AT_ONCE: Final = 50
"""Events that are put into words in one turn: about a millisecond."""
NOT_ABOUT: Final = ("master", "maker", "members", "by", "member", "voters", "besides", "kept", "found_at")
"""Fields that name everybody, or who decided."""


def as_object(name: int, at_ms: int, by: MemberId, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return an event as a plain object. `name`: its identity here."""
    rule = str(fields.get("rule", ""))
    said = sentence_of(kind, fields)
    if said is None:
        said = _without_sentence(kind, fields)
    about = {address_of(each) for key, value in fields.items() if key not in NOT_ABOUT for each in _members(value)}
    return {
        "id": name,
        "at": at_ms,
        "by": address_of(by),
        "kind": kind,
        "group": group_of(kind, fields),
        "said": said[:MOST_CHARACTERS],
        "reason": str(fields.get("reason", ""))[:MOST_CHARACTERS],
        "rule": rule,
        "meaning": words_of(rule) if rule else "",
        "about": sorted(about),
        "partition": fields.get("partition"),
    }


def _without_sentence(kind: str, fields: Mapping[str, Any]) -> str:
    """Return an event of another version, field by field."""
    told = ", ".join(f"{key} {value}" for key, value in fields.items() if key not in ("rule", "reason"))
    return f"{kind}: {told}" if told else kind


def _members(value: Any) -> list[MemberId]:
    many = value if isinstance(value, list | tuple) else [value]
    return [MemberId(each) for each in many if isinstance(each, str) and may_be_member(each)]


class ClusterStory:
    """The events that are known, as plain objects, by identity."""

    def __init__(self, recent: EventMemory) -> None:
        self._recent = recent
        self._own_number = 0
        """The number of the first own event that was not read yet."""
        self._events: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._of_partitions: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._told: OrderedDict[int, KnownEvent] = OrderedDict()
        """The same as `_events`, as the lines are made of them."""
        self._numbers = count(1)
        self.lines = StoryLines(())
        """What they add up to, as of the last round."""
        self._replies: list[tuple[MemberId, HistoryReply, int]] = []
        self._counts: dict[MemberId, int] = {}
        """Member to the number of its first decision that is not known yet."""
        self.forgotten = False
        """Whether older events were forgotten."""

    @property
    def recorded(self) -> int:
        """How many events this process has recorded."""
        return self._recent.count

    def take(self, member: MemberId, reply: HistoryReply) -> None:
        """Keep an answer of another member until the next round."""
        self._replies.append((member, reply, time.time_ns() // 1_000_000))

    async def read_on(self) -> list[dict[str, Any]]:
        """Put what is new into words, and return it, oldest first."""
        new: list[dict[str, Any]] = []
        replies, self._replies = self._replies, []
        for place, each in enumerate(self._recent.since(self._own_number)):
            self._own_number = each.number + 1
            fields = msgspec.structs.asdict(each.event)
            self._add(new, each.at_ms, each.by, type(each.event).__name__, fields)
            if place % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        for member, reply, asked_ms in replies:
            await self._read_reply(new, member, reply, asked_ms)
        if any(each["id"] in self._told for each in new):
            self.lines = await asyncio.to_thread(StoryLines, list(self._told.values()))
        return sorted(new, key=lambda each: each["at"])

    async def _read_reply(
        self, new: list[dict[str, Any]], member: MemberId, reply: HistoryReply, asked_ms: int
    ) -> None:
        first = self._counts.get(member, 0)
        self.forgotten = self.forgotten or reply.forgotten > first
        for place, (age, line) in enumerate(zip(reply.ages, reply.events, strict=True)):
            number = reply.forgotten + place
            if number < first:
                continue
            fields = msgspec.json.decode(line)
            kind = fields.pop("event")
            self._add(new, asked_ms - age, member, kind, fields)
            if place % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        self._counts[member] = max(first, reply.forgotten + len(reply.events))

    def _add(self, new: list[dict[str, Any]], at_ms: int, by: MemberId, kind: str, fields: dict[str, Any]) -> None:
        number = next(self._numbers)
        made = as_object(number, at_ms, by, kind, fields)
        new.append(made)
        if made["partition"] is None and kind != "TableInstalled":  # tables come by hundreds, as moves of partitions do
            self._events[number] = made
            self._told[number] = KnownEvent(number, at_ms, by, kind, made["group"], fields)
        else:
            self._of_partitions[number] = made
        if len(self._of_partitions) > MOST_OF_PARTITIONS:
            self._of_partitions.popitem(last=False)
            self.forgotten = True
        if len(self._events) > MOST:
            self._events.popitem(last=False)
            self._told.popitem(last=False)
            self.forgotten = True

    def forget_members(self, present: set[MemberId]) -> None:
        """Forget how far members were read that have gone, so that their number stays bounded."""
        if len(self._counts) > 4 * len(present) + 64:
            self._counts = {member: count for member, count in self._counts.items() if member in present}

    def whole(self) -> dict[str, Any]:
        """Return all of it, oldest first."""
        found = [*self._events.values(), *self._of_partitions.values()]
        return {"events": sorted(found, key=lambda each: each["at"]), "forgotten": self.forgotten}
