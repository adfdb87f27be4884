"""What must hold in every step of a member, and between any two members, seen from outside.

The rules use only what a member shows (its view, whom it follows and suspects, what it says and what it was told), never the
objects with which it decides. `Ghost` is the part of its history that some rules need; it is part of the explored state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from phalanx.common.ids import MemberId, Target
from phalanx.common.view import MembersView
from phalanx.wire import messages as m
from phalanx.wire.event import Event
from phalanx.wire.join_events import MemberAdmitted
from phalanx.wire.suspicion_events import ClaimEnded, ClaimStarted
from phalanx.wire.view_events import MemberRemoved, ViewInstalled

Broken = tuple[str, str]
"""A rule, and how it was broken."""


class ExplorationSeen(msgspec.Struct, frozen=True):
    """A member as others could see it."""

    this: MemberId
    view: MembersView | None
    master: MemberId | None
    is_master: bool
    is_claiming: bool
    suspected: tuple[MemberId, ...]
    leaving: tuple[MemberId, ...]
    """On the master: members that asked to leave, perhaps itself among them."""
    wants_to_leave: bool


class Ghost(msgspec.Struct):
    """What the rules remember of a member: ghost variables."""

    claim_id: int = 0
    """Of its latest claim."""
    agreed: dict[MemberId, int] = {}
    """On the claimer: who agreed with the latest claim, and the version of the list that came with it."""
    follows: MemberId | None = None
    """The claimer with which this member agreed last, until it installs a view of a later master."""


def find_broken(
    before: ExplorationSeen,
    after: ExplorationSeen,
    sender: MemberId | None,
    item: object,
    sends: Sequence[tuple[Target, object]],
    events: Sequence[Event],
    ghost: Ghost,
) -> list[Broken]:
    """Return the rules that one step of one member broke, and bring the ghost up to date."""
    if sender is not None and isinstance(item, m.ClaimAnswer) and item.accepted and item.view is not None:
        is_present = before.is_claiming and item.claim_id == ghost.claim_id
        ghost.agreed |= {sender: item.view.version} if is_present else {}
    for event in events:
        if isinstance(event, ClaimStarted):
            ghost.claim_id, ghost.agreed, ghost.follows = event.claim_id, {}, None
    broken = [*_installs(before, after, events, ghost)]
    broken += _answers(before, after, sends, ghost)
    broken += _claims(after, sends, events)
    broken += _master_changes(before, after, sends, events)
    broken += _own_views(after, sends, events)
    if after.is_claiming != before.is_claiming and not after.is_claiming:
        ghost.agreed = {}
    return broken


def _installs(
    before: ExplorationSeen, after: ExplorationSeen, events: Sequence[Event], ghost: Ghost
) -> Iterator[Broken]:
    latest = before.view
    for event in events:
        if not isinstance(event, ViewInstalled):
            continue
        view = MembersView(event.view_version, event.maker, event.members)
        if after.this not in view.members:
            yield "M3 view integrity", f"{after.this} installed {view}"
        if latest is not None:
            if view.version <= latest.version:
                yield "M1 views only move on", f"{latest}, then {view}"
            if not _same_order(latest.members, view.members):
                yield "age order", f"{latest}, then {view}"
        if latest is None and view.maker == after.this:
            if view.members != (view.maker,):
                yield "CS-08 only the master makes lists", f"{after.this} formed {view}"
        elif latest is not None and view.maker == after.this:
            # A list that was handed over in this step makes its oldest member the master.
            is_master = before.is_master or (latest != before.view and latest.members[0] == after.this)
            yield from _own_install(latest, view, events, ghost, is_master=is_master)
        elif latest is not None:
            yield from _foreign_install(before, latest, view, ghost)
        latest = view


def _own_install(
    latest: MembersView, view: MembersView, events: Sequence[Event], ghost: Ghost, *, is_master: bool
) -> Iterator[Broken]:
    """Check a view that the master made, or the first one of a claimer."""
    if is_master:
        gone = {event.removed for event in events if isinstance(event, MemberRemoved)}
        gone |= {member for event in events if isinstance(event, MemberAdmitted) for member in event.replaced}
        lost = [member for member in latest.members if member not in view.members and member not in gone]
        if lost:
            yield "CS-11 removal is decided", f"{lost} not in {view}, and nobody said why"
        return
    if not any(isinstance(event, ClaimEnded) for event in events):
        yield "CS-13 only the master removes", f"{latest}, then {view}"
        return
    strangers = [each for each in view.members if each != view.maker and each not in ghost.agreed]
    if strangers:
        yield "CS-63 the final list holds those that agreed", f"{strangers} did not agree to {view}"
    greatest = max([latest.version, *(ghost.agreed.get(each, 0) for each in view.members)])
    if view.version <= greatest:
        yield "CS-65 the final version is above all", f"{view}, but {greatest} was seen"


def _foreign_install(before: ExplorationSeen, latest: MembersView, view: MembersView, ghost: Ghost) -> Iterator[Broken]:
    """Check a view of another master: of the one that is followed, or of one that can come after it."""
    followed, master = ghost.follows, view.members[0]
    if followed is None or followed == master or followed not in latest.members:
        ghost.follows = None if followed == master else followed
        return
    if master not in latest.members:
        yield "CS-55 whom a member follows", f"it agreed with {followed}, then installed {view} of a stranger"
        return
    position = latest.members.index
    if position(master) < position(followed):
        yield "CS-55 no list of an older master", f"it agreed with {followed}, then installed {view}"
    elif followed not in before.suspected and followed in view.members:
        yield "CS-55 no list of a younger master", f"it agreed with {followed} unsuspected, then installed {view}"
    ghost.follows = None


def _answers(
    before: ExplorationSeen, after: ExplorationSeen, sends: Sequence[tuple[Target, object]], ghost: Ghost
) -> Iterator[Broken]:
    for to, message in sends:
        if not isinstance(message, m.ClaimAnswer):
            continue
        if not message.accepted:
            if before.master != after.master:
                yield "CS-58 who does not agree follows as before", f"{before}, then {after}"
            continue
        if before.view is None or to not in before.view.members:
            yield "CS-57 agreement with a member", f"{before} agreed with {to}"
            continue
        older = before.view.members[: before.view.members.index(MemberId(to))]
        trusted = [each for each in older if each not in before.suspected]
        if trusted or before.this in older:
            yield (
                "CS-58 agreement only if all older are suspected",
                f"{before} agreed with {to}, not suspecting {trusted}",
            )
        if after.master != to:
            yield "CS-57 who agrees follows the claimer", f"agreed with {to}, follows {after.master}"
        ghost.follows = MemberId(to)


def _claims(
    after: ExplorationSeen, sends: Sequence[tuple[Target, object]], events: Sequence[Event]
) -> Iterator[Broken]:
    for event in events:
        if isinstance(event, ClaimStarted):
            view = after.view
            older = view.members[: view.members.index(after.this)] if view is not None and after.is_claiming else ()
            if any(each not in after.suspected for each in older):
                yield "CS-54 a claim needs all older suspected", f"{after}"
    for to, message in sends:
        if isinstance(message, m.MastershipClaim) and to in after.suspected:
            yield "CS-60 no claim to a suspected member", f"{after} asked {to}"


def _master_changes(
    before: ExplorationSeen, after: ExplorationSeen, sends: Sequence[tuple[Target, object]], events: Sequence[Event]
) -> Iterator[Broken]:
    if after.view is None or after.master == before.master:
        return
    agreed = any(isinstance(message, m.ClaimAnswer) and message.accepted for _, message in sends)
    claims = after.master == after.this and any(isinstance(event, ClaimStarted) for event in events)
    installed = any(isinstance(event, ViewInstalled) and event.master == after.master for event in events)
    if not (agreed or claims or installed):
        yield "CS-55 when the master changes", f"{before}, then {after}"


def _own_views(
    after: ExplorationSeen, sends: Sequence[tuple[Target, object]], events: Sequence[Event]
) -> Iterator[Broken]:
    """Check that a member sends only views of its own that it has installed: a version means one list."""
    installed = [(e.view_version, e.members) for e in events if isinstance(e, ViewInstalled) and e.maker == after.this]
    for _, message in sends:
        view = getattr(message, "view", None)
        if not isinstance(view, MembersView) or view.maker != after.this or after.view is None or view == after.view:
            continue
        if (view.version, view.members) not in installed and after.this in view.members:
            yield "view identity", f"{after} sent {view}"


def find_conflict(one: ExplorationSeen, other: ExplorationSeen) -> Broken | None:
    """Return what is wrong between two members that run and have joined; None: nothing."""
    mine, theirs = one.view, other.view
    if mine is None or theirs is None:
        return None
    if (mine.version, mine.maker) == (theirs.version, theirs.maker) and mine != theirs:
        return "view identity", f"{one.this} has {mine}, {other.this} has {theirs}"
    # Sides that know nothing of each other can have admitted the same joiners, which went to one of them.
    is_one_side = mine.maker in theirs.members or theirs.maker in mine.members
    if is_one_side and not _same_order(mine.members, theirs.members):
        return "age order", f"{one.this} has {mine}, {other.this} has {theirs}"
    if one.is_master and other.is_master and one.this in theirs.members and other.this in mine.members:
        return "one master", f"{one.this} is master of {mine}, {other.this} of {theirs}"
    for master, follower in ((one, other), (other, one)):
        if not master.is_master or follower.master != master.this or master.view is None or follower.view is None:
            continue
        if follower.this not in master.view.members:
            continue
        if follower.view.version > master.view.version:
            return "CS-25 a master's list is above its followers'", f"{master} and {follower}"
        if follower.view.version == master.view.version and follower.view != master.view:
            return "CS-25 a follower has its master's list", f"{master} and {follower}"
    return None


def _same_order(one: tuple[MemberId, ...], other: tuple[MemberId, ...]) -> bool:
    return [each for each in one if each in other] == [each for each in other if each in one]
