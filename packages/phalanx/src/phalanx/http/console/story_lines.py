"""One line of the story for each change of the cluster, made of the decisions that belong to it.

A line is worked out of decisions alone (events with a rule), which members tell each other. So members that know the same decisions
make the same lines, and all consoles say the same. Other events are only details. Decisions of several members come in no certain
order, for their times are worked out from ages: a line depends on which decisions there are, and little on their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from phalanx.common.ids import MemberId, Millis, address_of
from phalanx.common.words import counted
from phalanx.reports.event_words import find_notice, in_words, read_event
from phalanx.rules import is_leave
from phalanx.wire.event import Event
from phalanx.wire.join_events import Joined, LeaveStarted, Left, MemberAdmitted
from phalanx.wire.merge_events import MergeConflicts
from phalanx.wire.suspicion_events import ClaimAnswered, ClaimEnded, ClaimStarted, MemberSuspected, SuspicionRemoved
from phalanx.wire.table_events import FullyReplicated, MigrationsPlanned, PartitionsRepaired
from phalanx.wire.view_events import MajorityChanged, MemberRemoved, ViewInstalled

MOST: Final = 100
"""So many of the last lines are told."""
NEAR_MS: Final[Millis] = 2_000
"""Times of two members differ by less."""
WITH_MS: Final[Millis] = 10_000
"""An event without a line of its own belongs to the last line, if that is not older."""
NEWS_MS: Final[Millis] = 60_000
"""So long a line is news."""
_DRAWN: Final = (
    ViewInstalled, MemberAdmitted, Joined, MemberRemoved, Left, LeaveStarted, MemberSuspected, SuspicionRemoved,
    ClaimStarted, ClaimAnswered, ClaimEnded, MajorityChanged, PartitionsRepaired, MigrationsPlanned, FullyReplicated,
    MergeConflicts,
)  # fmt: skip
"""Decisions that are told here in other words than their own."""


@dataclass(frozen=True)
class KnownEvent:
    """An event, as it is known here."""

    id: int
    at: Millis
    by: MemberId
    kind: str
    group: str
    fields: Mapping[str, Any]

    @cached_property
    def event(self) -> Event | None:
        """Return the event itself; None: it is one of another release, or lacks a field."""
        return read_event(self.kind, self.fields)


_RepairEvent = PartitionsRepaired | MigrationsPlanned | FullyReplicated


class StoryLine:
    """One change."""

    def __init__(self, key: str, told: KnownEvent, group: str, level: str, said: str = "") -> None:
        """`level`: bad, warn, good or info."""
        self.key, self.group, self.level, self.said = key, group, level, said
        self.at = told.at
        self.is_news = level != "info"
        self.events: list[int] = []
        self.about: set[str] = set()
        """Addresses of those who decided, and of those whom it concerns."""
        self.add(told)

    def add(self, told: KnownEvent) -> None:
        """Take a decision that belongs to it."""
        if told.id not in self.events:
            self.events.append(told.id)
            self.at = min(self.at, told.at)
            self.about.add(address_of(told.by))

    def put_into_words(self) -> None:
        """Work out what it says, when all decisions are there."""

    def as_object(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "at": self.at,
            "group": self.group,
            "level": self.level,
            "said": self.said,
            "events": self.events,
            "about": sorted(self.about),
        }


class _ViewLine(StoryLine):
    """A member list, and how it differs from the one before."""

    def __init__(self, told: KnownEvent, view: ViewInstalled) -> None:
        self.version, self.members = view.view_version, view.members
        super().__init__(f"view {self.version} {view.maker}", told, "view", "info")
        self.came: set[MemberId] = set()
        self.went: set[MemberId] = set()
        self.left: set[MemberId] = set() if view.maker in self.members else {view.maker}
        """Those of `went` that had asked to leave. A master that leaves makes the list without itself."""
        self.has_new_master = False
        self.without_majority: dict[MemberId, Millis] = {}
        """Members that lost the majority with it, and when."""

    @property
    def begins(self) -> bool:
        """Return whether it is the first list of the cluster."""
        return self.version == 1

    def follow(self, before: Sequence[MemberId]) -> None:
        """Take note of the list that a member had before this one."""
        self.came.update(each for each in self.members if each not in before)
        self.went.update(each for each in before if each not in self.members)
        self.has_new_master = self.has_new_master or before[0] != self.members[0]

    def accept(self, told: KnownEvent) -> None:
        """Take a decision that led to the list, or followed from it; then it is known also if the list before is not."""
        event, members = told.event, self.members
        match event:
            case MemberAdmitted() if event.joiner in members:
                self.came.add(event.joiner)
                self.went.update(event.replaced)
            case Joined() if told.by in members:
                if not self.begins:
                    self.came.add(told.by)
            case MemberRemoved() if event.removed not in members:
                self.went.add(event.removed)
                if is_leave(event.rule):
                    self.left.add(event.removed)
            case Left() if told.by not in members:
                self.went.add(told.by)
                self.left.add(told.by)
            case MajorityChanged(has_majority=False) if told.by in members:
                self.without_majority[told.by] = told.at
            case _:
                return
        self.add(told)

    def put_into_words(self) -> None:
        again = {address_of(each) for each in self.came} & {address_of(each) for each in self.went}
        came = _names(each for each in self.came if address_of(each) not in again)
        left = _names(each for each in self.left if address_of(each) not in again)
        gone = _names(each for each in self.went - self.left if address_of(each) not in again)
        self.about |= {address_of(each) for each in self.came | self.went | self.left}
        master = address_of(self.members[0])
        parts = [
            f"{_names(self.members)} began the cluster" if self.begins else f"{came} joined" if came else "",
            f"{', '.join(sorted(again))} came back as a new member" if again else "",
            f"{left} left" if left else "",
            f"{gone} crashed, {'hang or are' if ',' in gone else 'hangs or is'} cut off" if gone else "",
            f"{master} is the master now" if self.has_new_master and not self.begins else "",
        ]
        words = "; ".join(filter(None, parts)) or f"{master} made a new member list"
        without = ", without the majority" if self.without_majority else ""
        self.said = f"{words}: {counted(len(self.members), 'member')}{without}"
        self.level = "bad" if gone else "warn" if again or without else "good" if came or self.begins else "info"
        self.group = "trouble" if gone or again else "view"
        self.is_news = bool(gone or again or came or left)


class _SuspicionLine(StoryLine):
    """Members that suspect one that is still in their list."""

    def __init__(self, told: KnownEvent, suspect: MemberId) -> None:
        self._suspect = address_of(suspect)
        self._by: set[str] = set()
        super().__init__(f"suspect {self._suspect} {told.at}", told, "trouble", "bad")
        self.about.add(self._suspect)

    @property
    def is_open(self) -> bool:
        """Return whether somebody still suspects it."""
        return bool(self._by)

    def add(self, told: KnownEvent) -> None:
        super().add(told)
        (self._by.add if isinstance(told.event, MemberSuspected) else self._by.discard)(address_of(told.by))

    def put_into_words(self) -> None:
        if self._by:
            self.said = f"{self._suspect} does not answer {', '.join(sorted(self._by))}"
        else:
            self.level, self.said = "good", f"{self._suspect} was suspected, and answers again"


class _RepairLine(StoryLine):
    """From the first partition that lacks a replica until none does."""

    def __init__(self, told: KnownEvent, event: _RepairEvent) -> None:
        self._gone: set[str] = set()
        self._took_ms: Millis | None = None
        self._lacking = 0
        self._lost: set[int] = set()
        super().__init__(f"repair {event.table_version}", told, "repair", "warn")
        self.is_news = False

    @property
    def is_over(self) -> bool:
        """Return whether no partition lacks a replica any more."""
        return self._took_ms is not None

    def add(self, told: KnownEvent) -> None:
        super().add(told)
        self._note(told)

    def _note(self, told: KnownEvent) -> None:
        match told.event:
            case PartitionsRepaired(gone=gone, lost=lost):
                self._gone.update(map(address_of, gone))
                self._lost.update(lost)
                self.about |= self._gone
            case MigrationsPlanned(lacking=lacking):
                self._lacking = max(self._lacking, lacking)
            case FullyReplicated(took_ms=took_ms):
                self._took_ms, self.at = took_ms, told.at

    def put_into_words(self) -> None:
        gone = ", ".join(sorted(self._gone))
        if self._took_ms is not None:
            after = f", {self._took_ms / 1000:.1f} s after {gone} went" if gone else ""
            empty = f"; {counted(len(self._lost), 'partition')} began empty" if self._lost else ""
            self.said = f"Every partition has all its replicas again{after}{empty}"
            self.level, self.is_news = "warn" if empty else "good", True
        else:
            lack = f"{counted(self._lacking, 'partition')} lack{'s' * (self._lacking == 1)} a replica: copies are under way"
            self.said = lack if self._lacking else f"{gone} went: others take over what it held"


class _MergeLine(StoryLine):
    """What the cluster and a member that came back had otherwise: each owner decides about its part, a request at a time."""

    def __init__(self, told: KnownEvent, former: MemberId) -> None:
        self._former = address_of(former)
        self._maps: set[str] = set()
        self._keys = self._won = 0
        super().__init__(f"merge {former}", told, told.group, "info")
        self.about.add(self._former)

    def add(self, told: KnownEvent) -> None:
        super().add(told)
        if isinstance(event := told.event, MergeConflicts):
            self._maps.add(event.map)
            self._keys += event.count
            self._won += event.kept_won

    def put_into_words(self) -> None:
        keys, maps = counted(self._keys, "key"), counted(len(self._maps), "map")
        self.said = f"{self._former} came back with other versions of {keys} in {maps}: {self._won} of them won"


class StoryLines:
    """The lines of a story."""

    def __init__(self, told: Iterable[KnownEvent]) -> None:
        self._all = sorted(told, key=lambda each: (each.at, each.id))
        self._decided = [each for each in self._all if each.fields.get("rule")]
        self._lines: list[StoryLine] = []
        self._views: dict[str, _ViewLine] = {}
        self._suspicions: dict[str, _SuspicionLine] = {}
        self._repairs: dict[MemberId, _RepairLine] = {}
        """Master to its last repair."""
        self._merges: dict[str, _MergeLine] = {}
        self._make_views()
        for each in self._decided:
            self._take(each)
        for each in self._decided:
            if each.event is not None and not isinstance(each.event, _DRAWN):
                self._in_its_own_words(each)
        self._lines += self._views.values()
        for line in self._lines:
            line.put_into_words()
        self._lines.sort(key=lambda each: each.at)
        self._add_details()

    def as_objects(self) -> list[dict[str, Any]]:
        """Return the last lines, oldest first."""
        return [each.as_object() for each in self._lines[-MOST:]]

    def news(self, now: Millis) -> dict[str, Any] | None:
        """Return the last line that is worth a notice; None: there is none of the last minute."""
        last = next((each for each in reversed(self._lines) if each.is_news), None)
        if last is None or now - last.at > NEWS_MS:
            return None
        return {"key": last.key, "at": last.at, "level": last.level, "said": last.said}

    def _make_views(self) -> None:
        before: dict[MemberId, Sequence[MemberId]] = {}
        for told in self._decided:
            if isinstance(told.event, ViewInstalled) and told.event.members:
                fresh = _ViewLine(told, told.event)
                view = self._views.setdefault(fresh.key, fresh)
                view.add(told)
                if told.by in before:
                    view.follow(before[told.by])
                before[told.by] = view.members
        of_version: dict[int, list[_ViewLine]] = {}
        for view in self._views.values():
            of_version.setdefault(view.version, []).append(view)
        for told in self._decided:
            for view in of_version.get(told.fields.get("view_version", 0), ()):
                view.accept(told)

    def _take(self, told: KnownEvent) -> None:
        event = told.event
        match event:
            case MemberSuspected() | SuspicionRemoved():
                self._take_suspicion(told, event)
            case LeaveStarted():
                self._take_departure(told, event.leaver)
            case MemberRemoved():
                self._take_departure(told, event.removed)
            case Left():
                self._take_departure(told, told.by)
            case ClaimStarted() | ClaimAnswered() | ClaimEnded():
                claimer = event.claimer if isinstance(event, ClaimAnswered) else told.by
                near = [each for each in self._views.values() if each.members[0] == claimer and each.has_new_master]
                near = [each for each in near if abs(each.at - told.at) < WITH_MS]
                if near:
                    near[0].add(told)
            case PartitionsRepaired() | MigrationsPlanned() | FullyReplicated():
                self._take_repair(told, event)
            case MajorityChanged(has_majority=True):
                self._take_majority(told)
            case MergeConflicts():
                merge = self._merges.get(event.former)
                if merge is None:
                    merge = self._merges[event.former] = _MergeLine(told, event.former)
                    self._lines.append(merge)
                else:
                    merge.add(told)

    def _without(self, member: str, at: Millis) -> _ViewLine | None:
        """Return the first list without a member from that time on."""
        found = [each for each in self._views.values() if member in each.went and each.at >= at - NEAR_MS]
        return min(found, key=lambda each: each.at, default=None)

    def _take_departure(self, told: KnownEvent, gone: MemberId) -> None:
        event = told.event
        if (view := self._without(gone, told.at)) is not None:
            view.add(told)
            if isinstance(event, LeaveStarted):
                view.left.add(gone)
        elif isinstance(event, LeaveStarted):
            said = f"{address_of(gone)} is leaving: {counted(event.replicas_to_hand_over, 'replica')} to hand over"
            self._lines.append(StoryLine(f"leave {gone}", told, "view", "info", said))

    def _take_suspicion(self, told: KnownEvent, event: MemberSuspected | SuspicionRemoved) -> None:
        suspect, is_over = event.suspect, isinstance(event, SuspicionRemoved)
        if (view := self._without(suspect, told.at)) is not None:
            view.add(told)
        elif suspect in self._suspicions and (is_over or self._suspicions[suspect].is_open):
            self._suspicions[suspect].add(told)
        elif not is_over:
            line = self._suspicions[suspect] = _SuspicionLine(told, suspect)
            self._lines.append(line)

    def _take_majority(self, told: KnownEvent) -> None:
        """Drop the loss of a majority that is back at once, if all who went had left: their votes are counted no more."""
        for view in self._views.values():
            if view.went <= view.left and 0 <= told.at - view.without_majority.get(told.by, told.at + 1) < NEAR_MS:
                del view.without_majority[told.by]
                view.add(told)
                return
        self._in_its_own_words(told)

    def _take_repair(self, told: KnownEvent, event: _RepairEvent) -> None:
        last = self._repairs.get(told.by)
        if last is not None and not last.is_over:
            last.add(told)
        elif isinstance(event, MigrationsPlanned) and not event.lacking:
            because = f", because {event.reason}" if event.reason else ""
            said = f"{counted(event.partitions, 'partition')} are moved{because}"
            self._lines.append(StoryLine(f"moves {event.table_version}", told, "repair", "info", said))
        else:
            line = self._repairs[told.by] = _RepairLine(told, event)
            self._lines.append(line)
        if isinstance(event, PartitionsRepaired) and event.lost:
            said = f"{counted(len(event.lost), 'partition')} lost: {_names(event.gone)} held their last replicas"
            self._lines.append(StoryLine(f"lost {event.table_version}", told, "lost", "bad", said))

    def _in_its_own_words(self, told: KnownEvent) -> None:
        notice = find_notice(told.kind, told.fields)
        if told.event is not None and notice is not None and not notice.is_detail:
            level = {"lost": "bad", "trouble": "warn"}.get(told.group, "info")
            words = f"{address_of(told.by)} {in_words(told.event)}"
            self._lines.append(StoryLine(f"{told.kind} {told.by} {told.at}", told, told.group, level, words))

    def _add_details(self) -> None:
        """Give events without a line to the last line before them."""
        known = {each for line in self._lines for each in line.events}
        at = -1
        for told in self._all:
            while at + 1 < len(self._lines) and self._lines[at + 1].at <= told.at:
                at += 1
            if told.id not in known and at >= 0 and told.at - self._lines[at].at < WITH_MS:
                self._lines[at].events.append(told.id)


def _names(members: Iterable[MemberId]) -> str:
    return ", ".join(sorted(set(map(address_of, members))))
