"""What happened to one member, out of what many members decided: which decisions are about it, in words, and the end.

Works on the fields of events, not on their kinds: a new kind of event that names a member, a rule and a reason is told
as well. Only the conclusion looks for the kinds that end or begin a membership.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from phalanx.common.errors import UsageError
from phalanx.common.ids import MemberId, address_of, incarnation_of, may_be_member
from phalanx.reports.causes import cause_of, with_reason
from phalanx.reports.event_words import is_many, sentence_of, show_value
from phalanx.rules import is_leave

NOT_ABOUT = ("master", "maker", "members", "by", "member", "other_master", "reported_by", "found_at")
"""Fields that name who decided, or everybody: an event is not about them."""
LISTS = ("ViewInstalled", "Joined")


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One event that names its rule."""

    at_ms: int
    by: MemberId
    event: str
    fields: dict[str, Any]
    """The other fields of the event."""

    @property
    def rule(self) -> str:
        return str(self.fields.get("rule", ""))

    @property
    def reason(self) -> str:
        return str(self.fields.get("reason", ""))

    def names(self, member: MemberId, *fields: str) -> bool:
        """Return whether one of these fields contains the member. Without fields: any that an event can be about."""
        chosen = fields or tuple(name for name in self.fields if name not in NOT_ABOUT)
        return any(member in _all_of(value) for value in map(self.fields.get, chosen))


def _all_of(value: Any) -> Sequence[Any]:
    """Return the values of a field, one or many."""
    return value if is_many(value) else (value,)


class StorySource(msgspec.Struct, kw_only=True):
    """The decisions that were found, and notes about what is missing."""

    decisions: list[Decision]
    """Oldest first."""
    suspected_by: dict[MemberId, list[MemberId]] = {}
    """Suspect to the members that suspect it now; only living members can be asked for that."""
    notes: list[str] = []
    """What is missing, in words."""
    views: dict[MemberId, tuple[int, tuple[MemberId, ...]]] = {}
    """Member to the version and members of the list that it has now, or had when its log ended."""

    def known(self) -> list[MemberId]:
        """Return all incarnations that are named anywhere, in the order in which they appear."""
        found: dict[MemberId, None] = {}
        for decision in self.decisions:
            for value in (decision.by, *decision.fields.values()):
                for each in _all_of(value):
                    if isinstance(each, str) and may_be_member(each):
                        found.setdefault(MemberId(each))
        for _, members in self.views.values():
            found.update(dict.fromkeys(members))
        return list(found)


def find_incarnations(text: str, known: Iterable[MemberId]) -> list[MemberId]:
    """Find the members that `host:port`, an identity or the beginning of an incarnation means; none if it is unknown.

    Raises `UsageError` if it fits members on several addresses.
    """
    known = list(known)
    if re.search(r":\d+$", text):
        return [member for member in known if address_of(member) == text]
    found = [member for member in known if (member if "/" in text else incarnation_of(member)).startswith(text)]
    if len(found) > 1:
        raise UsageError(f"{text!r} fits {', '.join(found)}: give more characters of it")
    return found


class EventStory:
    """The decisions about the incarnations of one member."""

    def __init__(self, source: StorySource, subjects: list[MemberId]) -> None:
        self.source = source
        self.subjects = subjects
        """Oldest first; the last one is the one that the conclusion is about."""
        self.decisions = [decision for decision in _without_repetitions(source.decisions) if self._concerns(decision)]

    def _concerns(self, decision: Decision) -> bool:
        if any(decision.names(subject) for subject in self.subjects):
            return True
        if decision.by not in self.subjects or decision.event == "ViewInstalled":
            return False
        # Of its own decisions, those about itself: no field names anybody else.
        named = [value for name, value in decision.fields.items() if name not in NOT_ABOUT]
        return not any(isinstance(value, str) and may_be_member(value) for value in named)

    def name(self, member: object) -> str:
        """Name a member as lines show it, with its incarnation if its address has several."""
        text = MemberId(str(member))
        several = len(self.subjects) > 1 and text in self.subjects
        return f"{address_of(text)}/{incarnation_of(text)[:8]}" if several else address_of(text)

    def words(self, decision: Decision) -> str:
        """Return the decision in words, with its reason."""
        said = sentence_of(decision.event, decision.fields, self.name, "in member list {}")
        if said is not None:
            return said
        rest = [
            f"{name.replace('_', ' ')} {show_value(value, self.name)}"
            for name, value in decision.fields.items()
            if name not in ("rule", "reason")
        ]
        return ", ".join([re.sub(r"(?<!^)(?=[A-Z])", " ", decision.event).lower(), *rest])

    def rules(self, decision: Decision) -> list[str]:
        """Return the ids of the rules of the decision, and other words that were recorded as its rule."""
        return [decision.rule] if decision.rule else []

    # --- the end ---------------------------------------------------------------------------------------------------

    def conclusion(self, when: Mapping[int, str]) -> tuple[str, str]:
        """Return the present state (`member`, `removed`, `left`, `waiting`, `gone`, `not admitted`) and a sentence about it.

        `when`: each decision's time in words.
        """
        subject = self.subjects[-1]
        views = self.source.views
        newest = max((view[0] for view in views.values()), default=0)
        is_member = any(version == newest and subject in members for version, members in views.values())
        status, said = self._present(subject, when) if is_member else self._gone(subject, when)
        earlier = [self._gone(before, when)[1] for before in self.subjects[:-1]]
        return status, ". Before: ".join([said, *reversed(earlier)])

    def _present(self, subject: MemberId, when: Mapping[int, str]) -> tuple[str, str]:
        begun = self._last(subject, "MemberAdmitted", "joiner")
        said = f"{self.name(subject)} is a member now"
        if begun is not None:
            version = begun.fields.get("view_version")
            said += f", since member list {version}: admitted by {self.name(begun.by)}, {when[id(begun)]}"
        elif (formed := next((d for d in self.decisions if d.by == subject and d.event == "Joined"), None)) is not None:
            said += f", since member list {formed.fields.get('view_version')}, {when[id(formed)]}"
        suspecting = self.source.suspected_by.get(subject, [])
        if suspecting:
            last = self._last(subject, "MemberSuspected", "suspect")
            because = f" because {_cause_with(last.reason)}" if last is not None and last.reason else ""
            said += f"; suspected by {', '.join(map(self.name, suspecting))}{because}"
        return "member", said

    def _gone(self, subject: MemberId, when: Mapping[int, str]) -> tuple[str, str]:
        name = self.name(subject)
        if (last := self._last(subject, "MemberRemoved", "removed")) is not None:
            status = "left" if is_leave(last.rule) else "removed"
            version = last.fields.get("view_version")
            if status == "left":
                farewell = f"{self.name(last.by)}, the master, released it with member list {version}, {when[id(last)]}"
                return status, f"{name} left in good order. {farewell}"
            return status, self._removed(name, last.by, version, when[id(last)], last.reason)
        if (last := self._last(subject, "ClaimEnded", "left_out")) is not None:
            claimer = f"{self.name(last.by)}, the new master, did not include it, {when[id(last)]}"
            return "removed", f"{name} was removed because it did not agree to the claim of the mastership. {claimer}"
        if (last := self._last(subject, "MemberAdmitted", "replaced")) is not None:
            new = str(last.fields.get("joiner"))
            said = f"{name} was replaced because its process was started again, as {address_of(MemberId(new))}/{incarnation_of(MemberId(new))[:8]}"
            return "removed", f"{said}, with member list {last.fields.get('view_version')}, {when[id(last)]}"
        for event, status, verb in (
            ("Left", "left", "left in good order"),
            ("Ejected", "removed", "found that the other members continued without it"),
        ):
            own = [decision for decision in self.decisions if decision.by == subject and decision.event == event]
            if own:
                return status, f"{name} {verb}, {when[id(own[-1])]}"
        if (first := self._first_without(subject)) is not None:
            return self._dropped(subject, first, when[id(first)])
        if (last := self._last(subject, "JoinHeldBack", "joiner")) is not None:
            return "waiting", f"{name} waits to be admitted by {self.name(last.by)}: {last.reason}"
        if any(decision.names(subject, "members") for decision in self.source.decisions):
            return "gone", f"{name} was a member; the events that were found do not show what happened to it"
        return "not admitted", f"{name} has not been admitted"

    def _first_without(self, subject: MemberId) -> Decision | None:
        """Find the first installation of a list without the member by somebody who had installed one with it."""
        had: set[MemberId] = set()
        for decision in self.source.decisions:
            if decision.event == "ViewInstalled":
                if decision.names(subject, "members"):
                    had.add(decision.by)
                elif decision.by in had:
                    return decision
        return None

    def _dropped(self, subject: MemberId, first: Decision, at: str) -> tuple[str, str]:
        """Conclude from the list alone: nothing else tells that a crashed master was removed."""
        name, maker, version = self.name(subject), first.fields.get("maker"), first.fields.get("view_version")
        if maker == subject:
            return (
                "left",
                f"{name} left in good order: as the master it made member list {version} without itself, {at}",
            )
        suspicions = [d for d in self.decisions if d.event == "MemberSuspected" and d.names(subject, "suspect")]
        own = [each for each in suspicions if each.by == maker] or suspicions
        return "removed", self._removed(name, maker, version, at, own[-1].reason if own else "")

    def _removed(self, name: str, by: object, version: object, at: str, reason: str) -> str:
        """Say that a member was removed: the cause first, then who did it when, and the figures."""
        cause = cause_of(reason)
        because = f" because {cause}" if cause else ""
        return f"{name} was removed{because}. {self.name(by)}, the master, removed it with member list {version}, {at}{with_reason(cause, reason)}"

    def _last(self, subject: MemberId, event: str, field: str) -> Decision | None:
        found = [each for each in self.decisions if each.event == event and each.names(subject, field)]
        return found[-1] if found else None


def _cause_with(reason: str) -> str:
    cause = cause_of(reason)
    return f"{cause}{with_reason(cause, reason)}"


def together(decisions: Iterable[Decision]) -> list[tuple[Decision, Decision]]:
    """Group decisions that are told as one line: return each with the first one of its line.

    Conflicts come partition by partition: those that one member found in one map of one former member are one line.
    """
    lines: list[tuple[Decision, Decision]] = []
    places: dict[tuple[object, ...], int] = {}
    for each in decisions:
        if each.event != "MergeConflicts":
            lines.append((each, each))
            continue
        place = places.setdefault((each.by, *map(each.fields.get, ("former", "map", "policy"))), len(lines))
        if place == len(lines):
            lines.append((each, each))
            continue
        before, first = lines[place]
        sums = {name: before.fields.get(name, 0) + each.fields.get(name, 0) for name in ("count", "kept_won")}
        lines[place] = (msgspec.structs.replace(before, fields={**before.fields, **sums}), first)
    return lines


def _without_repetitions(decisions: list[Decision]) -> Iterable[Decision]:
    """Leave out lists that only repeat their maker's decision, and decisions about one partition."""
    return (each for each in decisions if each.event != "ViewInstalled" and "partition" not in each.fields)
