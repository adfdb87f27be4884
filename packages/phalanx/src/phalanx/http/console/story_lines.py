"""One line of the story for each change of the cluster, made of the decisions that belong to it.

A line is worked out of decisions alone (events with a rule), which members tell each other. So members that know the same decisions
make the same lines, and all consoles say the same. Other events are only details. Decisions of several members come in no certain
order, for their times are worked out from ages: a line depends on which decisions there are, and little on their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from phalanx.common.ids import MemberId, Millis, address_of
from phalanx.common.words import counted

MOST: Final = 100
"""So many of the last lines are told."""
NEAR_MS: Final[Millis] = 2_000
"""Times of two members differ by less."""
WITH_MS: Final[Millis] = 10_000
"""An event without a line of its own belongs to the last line, if that is not older."""
NEWS_MS: Final[Millis] = 60_000
"""So long a line is news."""
NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "ViewInstalled": ("view_version", "maker", "members"),
    "MemberAdmitted": ("view_version", "joiner", "replaced"),
    "Joined": ("view_version",),
    "MemberRemoved": ("view_version", "removed"),
    "Left": ("view_version",),
    "LeaveStarted": ("leaver", "replicas_to_hand_over"),
    "MemberSuspected": ("suspect",),
    "SuspicionRemoved": ("suspect",),
    "ClaimStarted": (),
    "ClaimAnswered": ("claimer",),
    "ClaimEnded": (),
    "MajorityChanged": ("view_version", "has_majority"),
    "PartitionsRepaired": ("gone", "lost"),
    "MigrationsPlanned": ("lacking", "partitions"),
    "FullyReplicated": ("took_ms",),
    "MergeConflicts": ("former", "map", "count", "kept_won"),
}
"""The fields of decisions that are read here. One of another release that lacks a field is a detail."""
DETAILS: Final = frozenset(
    [
        "JoinAnswered",
        "OutdatedViewHealed",
        "ViewStable",
        "ClusterStarted",
        "StaleMessageIgnored",
        "ViewsDiverged",
        "TableSearchEnded",
        "MemberQuestioned",
        "ComplaintSent",
        "ComplaintJudged",
        "PromotionWaits",
    ]
)
"""Decisions that say how a change went, and are no change themselves."""


class KnownEvent(NamedTuple):
    """An event, as it is known here."""

    id: int
    at: Millis
    by: MemberId
    kind: str
    group: str
    fields: Mapping[str, Any]


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

    def __init__(self, told: KnownEvent) -> None:
        self.version = int(told.fields["view_version"])
        self.members = tuple(map(MemberId, told.fields["members"]))
        super().__init__(f"view {self.version} {told.fields['maker']}", told, "view", "info")
        self.came: set[MemberId] = set()
        self.went: set[MemberId] = set()
        maker = MemberId(told.fields["maker"])
        self.left: set[MemberId] = set() if maker in self.members else {maker}
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
        fields, members = told.fields, self.members
        match told.kind:
            case "MemberAdmitted" if fields["joiner"] in members:
                self.came.add(MemberId(fields["joiner"]))
                self.went.update(map(MemberId, fields["replaced"]))
            case "Joined" if told.by in members:
                if not self.begins:
                    self.came.add(told.by)
            case "MemberRemoved" if fields["removed"] not in members:
                self.went.add(MemberId(fields["removed"]))
                if "graceful shutdown" in str(fields.get("rule")):
                    self.left.add(MemberId(fields["removed"]))
            case "Left" if told.by not in members:
                self.went.add(told.by)
                self.left.add(told.by)
            case "MajorityChanged" if told.by in members and not fields["has_majority"]:
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

    def __init__(self, told: KnownEvent) -> None:
        self._suspect = address_of(MemberId(told.fields["suspect"]))
        self._by: set[str] = set()
        super().__init__(f"suspect {self._suspect} {told.at}", told, "trouble", "bad")
        self.about.add(self._suspect)

    @property
    def is_open(self) -> bool:
        """Return whether somebody still suspects it."""
        return bool(self._by)

    def add(self, told: KnownEvent) -> None:
        super().add(told)
        (self._by.add if told.kind == "MemberSuspected" else self._by.discard)(address_of(told.by))

    def put_into_words(self) -> None:
        if self._by:
            self.said = f"{self._suspect} does not answer {', '.join(sorted(self._by))}"
        else:
            self.level, self.said = "good", f"{self._suspect} was suspected, and answers again"


class _RepairLine(StoryLine):
    """From the first partition that lacks a replica until none does."""

    def __init__(self, told: KnownEvent) -> None:
        self._gone: set[str] = set()
        self._took_ms: Millis | None = None
        self._lacking = 0
        self._lost: set[int] = set()
        super().__init__(f"repair {told.fields.get('table_version', 0)}", told, "repair", "warn")
        self.is_news = False

    @property
    def is_over(self) -> bool:
        """Return whether no partition lacks a replica any more."""
        return self._took_ms is not None

    def add(self, told: KnownEvent) -> None:
        super().add(told)
        self._note(told)

    def _note(self, told: KnownEvent) -> None:
        fields = told.fields
        match told.kind:
            case "PartitionsRepaired":
                self._gone.update(address_of(MemberId(each)) for each in fields["gone"])
                self._lost.update(fields["lost"])
                self.about |= self._gone
            case "MigrationsPlanned":
                self._lacking = max(self._lacking, fields["lacking"])
            case "FullyReplicated":
                self._took_ms, self.at = fields["took_ms"], told.at

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

    def __init__(self, told: KnownEvent) -> None:
        self._former = address_of(MemberId(told.fields["former"]))
        self._maps: set[str] = set()
        self._keys = self._won = 0
        super().__init__(f"merge {told.fields['former']}", told, told.group, "info")
        self.about.add(self._former)

    def add(self, told: KnownEvent) -> None:
        super().add(told)
        self._maps.add(told.fields["map"])
        self._keys += told.fields["count"]
        self._won += told.fields["kept_won"]

    def put_into_words(self) -> None:
        keys, maps = counted(self._keys, "key"), counted(len(self._maps), "map")
        self.said = f"{self._former} came back with other versions of {keys} in {maps}: {self._won} of them won"


class StoryLines:
    """The lines of a story."""

    def __init__(self, told: Iterable[KnownEvent], sentence_of: Callable[[str, Mapping[str, Any]], str | None]) -> None:
        """`sentence_of`: kind and fields to a sentence, or None."""
        self._sentence_of = sentence_of
        self._all = sorted(told, key=lambda each: (each.at, each.id))
        self._decided = [each for each in self._all if each.fields.get("rule")]
        self._known = [
            each for each in self._decided if all(name in each.fields for name in NEEDS.get(each.kind, ("?",)))
        ]
        self._lines: list[StoryLine] = []
        self._views: dict[str, _ViewLine] = {}
        self._suspicions: dict[str, _SuspicionLine] = {}
        self._repairs: dict[MemberId, _RepairLine] = {}
        """Master to its last repair."""
        self._merges: dict[str, _MergeLine] = {}
        self._make_views()
        for each in self._known:
            self._take(each)
        for each in self._decided:
            if each.kind not in NEEDS and each.kind not in DETAILS:
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
        for told in self._known:
            if told.kind == "ViewInstalled" and told.fields["members"]:
                fresh = _ViewLine(told)
                view = self._views.setdefault(fresh.key, fresh)
                view.add(told)
                if told.by in before:
                    view.follow(before[told.by])
                before[told.by] = view.members
        of_version: dict[int, list[_ViewLine]] = {}
        for view in self._views.values():
            of_version.setdefault(view.version, []).append(view)
        for told in self._known:
            for view in of_version.get(told.fields.get("view_version", 0), ()):
                view.accept(told)

    def _take(self, told: KnownEvent) -> None:
        match told.kind:
            case "MemberSuspected" | "SuspicionRemoved":
                self._take_suspicion(told)
            case "LeaveStarted" | "MemberRemoved" | "Left":
                self._take_departure(told)
            case "ClaimStarted" | "ClaimAnswered" | "ClaimEnded":
                claimer = told.fields.get("claimer", told.by)
                near = [each for each in self._views.values() if each.members[0] == claimer and each.has_new_master]
                near = [each for each in near if abs(each.at - told.at) < WITH_MS]
                if near:
                    near[0].add(told)
            case "PartitionsRepaired" | "MigrationsPlanned" | "FullyReplicated":
                self._take_repair(told)
            case "MajorityChanged" if told.fields["has_majority"]:
                self._take_majority(told)
            case "MergeConflicts":
                merge = self._merges.get(told.fields["former"])
                if merge is None:
                    merge = self._merges[told.fields["former"]] = _MergeLine(told)
                    self._lines.append(merge)
                else:
                    merge.add(told)

    def _without(self, member: str, at: Millis) -> _ViewLine | None:
        """Return the first list without a member from that time on."""
        found = [each for each in self._views.values() if member in each.went and each.at >= at - NEAR_MS]
        return min(found, key=lambda each: each.at, default=None)

    def _take_departure(self, told: KnownEvent) -> None:
        gone = MemberId(told.fields.get("leaver") or told.fields.get("removed") or told.by)
        if (view := self._without(gone, told.at)) is not None:
            view.add(told)
            if told.kind == "LeaveStarted":
                view.left.add(gone)
        elif told.kind == "LeaveStarted":
            replicas = counted(told.fields["replicas_to_hand_over"], "replica")
            said = f"{address_of(gone)} is leaving: {replicas} to hand over"
            self._lines.append(StoryLine(f"leave {gone}", told, "view", "info", said))

    def _take_suspicion(self, told: KnownEvent) -> None:
        suspect = MemberId(told.fields["suspect"])
        if (view := self._without(suspect, told.at)) is not None:
            view.add(told)
        elif suspect in self._suspicions and (told.kind == "SuspicionRemoved" or self._suspicions[suspect].is_open):
            self._suspicions[suspect].add(told)
        elif told.kind == "MemberSuspected":
            line = self._suspicions[suspect] = _SuspicionLine(told)
            self._lines.append(line)

    def _take_majority(self, told: KnownEvent) -> None:
        """Drop the loss of a majority that is back at once, if all who went had left: their votes are counted no more."""
        for view in self._views.values():
            if view.went <= view.left and 0 <= told.at - view.without_majority.get(told.by, told.at + 1) < NEAR_MS:
                del view.without_majority[told.by]
                view.add(told)
                return
        self._in_its_own_words(told)

    def _take_repair(self, told: KnownEvent) -> None:
        fields, last = told.fields, self._repairs.get(told.by)
        if last is not None and not last.is_over:
            last.add(told)
        elif told.kind == "MigrationsPlanned" and not fields["lacking"]:
            because = f", because {fields['reason']}" if fields.get("reason") else ""
            said = f"{counted(fields['partitions'], 'partition')} are moved{because}"
            self._lines.append(StoryLine(f"moves {fields.get('table_version', 0)}", told, "repair", "info", said))
        else:
            line = self._repairs[told.by] = _RepairLine(told)
            self._lines.append(line)
        if told.kind == "PartitionsRepaired" and fields["lost"]:
            said = (
                f"{counted(len(fields['lost']), 'partition')} lost: {_names(fields['gone'])} held their last replicas"
            )
            self._lines.append(StoryLine(f"lost {fields.get('table_version', 0)}", told, "lost", "bad", said))

    def _in_its_own_words(self, told: KnownEvent) -> None:
        said = self._sentence_of(told.kind, told.fields)
        if said is not None:
            reason = told.fields.get("reason")
            words = f"{address_of(told.by)} {said}: {reason}" if reason else f"{address_of(told.by)} {said}"
            level = {"lost": "bad", "trouble": "warn"}.get(told.group, "info")
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


def _names(members: Iterable[str]) -> str:
    return ", ".join(sorted({address_of(MemberId(each)) for each in members}))
