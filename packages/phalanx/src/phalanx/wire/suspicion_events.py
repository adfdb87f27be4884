"""Events about suspicions: members that others do not reach, claims of the mastership, diverged views, pauses."""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.wire.event import DEBUG, TROUBLE, VIEW, WARNING, Either, Event, Notice


class MemberSuspected(Event, frozen=True):
    notice = Notice("suspects {suspect}", WARNING, TROUBLE, log="{this} suspects {suspect}: {reason}")

    suspect: MemberId
    reason: str
    rule: str
    silent_ms: Millis | None = None
    """How long the suspect had shown no sign of life; None: not known."""


class SuspicionRemoved(Event, frozen=True):
    notice = Notice("no longer suspects {suspect}", group=VIEW)

    suspect: MemberId
    rule: str


class MemberQuestioned(Event, frozen=True):
    """Another member suspects one that this member does not watch; this one asks it whether it is alive."""

    notice = Notice("asks {suspect} whether it lives, because {reported_by} suspects it", is_detail=True)

    suspect: MemberId
    reported_by: MemberId
    rule: str


class ComplaintSent(Event, frozen=True):
    """A heartbeat came from a process that is not in this member's view, and this member complained to its master."""

    notice = Notice("complains to {master} of {complainee}", is_detail=True)

    complainee: MemberId
    """The sender of the heartbeat."""
    master: MemberId
    rule: str


class ComplaintJudged(Event, frozen=True):
    notice = Notice(
        "judges the complaint of {complainer} about {complainee}[; tells {suspicion_sent_to}]", is_detail=True
    )

    complainer: MemberId
    complainee: MemberId
    suspicion_sent_to: tuple[MemberId, ...]
    rule: str


class ViewsDiverged(Event, frozen=True):
    """This member has sent an explicit suspicion, or obeyed one: the views of the two members have diverged."""

    notice = Notice("and {peer} have different member lists: {what}", DEBUG, is_detail=True)

    peer: MemberId
    what: str
    rule: str


class StaleMessageIgnored(Event, frozen=True):
    notice = Notice("ignores from {peer}: {what}", DEBUG, is_detail=True)

    peer: MemberId
    what: str
    rule: str


class ClaimStarted(Event, frozen=True):
    notice = Notice("claims to be the master: it suspects {suspected}", WARNING, TROUBLE)

    claim_id: int
    view_version: int
    suspected: tuple[MemberId, ...]
    rule: str


class ClaimAnswered(Event, frozen=True):
    notice = Notice("answers the claim of {claimer}, agreed: {accepted}[; not suspected: {not_suspected}]", group=VIEW)

    claimer: MemberId
    accepted: bool
    not_suspected: tuple[MemberId, ...]
    """The members older than the claimer that this member does not suspect: because of them it does not agree yet."""
    rule: str


class ClaimEnded(Event, frozen=True):
    notice = Notice("has claimed to be the master for {took_ms} ms: {outcome}[, without {left_out}]", group=VIEW)

    claim_id: int
    outcome: str
    left_out: tuple[MemberId, ...]
    """The members that the claimer asked and that are not in the view which its claim made."""
    took_ms: Millis
    rule: str


class LinksReported(Event, frozen=True):
    """On the master: a slave reports other unreachable members than before. All these events together say who could
    reach whom, and when."""

    notice = Either(
        "cannot_reach",
        Notice(
            "hears that {reporter} cannot reach {cannot_reach}[; it reaches {reaches_again} again]", WARNING, TROUBLE
        ),
        Notice("hears that {reporter} reaches everybody again", group=VIEW),
    )

    reporter: MemberId
    cannot_reach: tuple[MemberId, ...]
    """All members that the reporter cannot reach now; empty: it reaches all."""
    reaches_again: tuple[MemberId, ...]
    """The members that the reporter could not reach before and reaches now."""
    rule: str


class ResolutionDecided(Event, frozen=True):
    """Some members cannot reach each other, and the master has decided which members stay."""

    notice = Notice("is going to remove {removed}, so that all others reach each other", WARNING, TROUBLE)

    links: tuple[tuple[MemberId, MemberId], ...]
    """The broken links that the decision is about."""
    reports: tuple[tuple[MemberId, ...], ...]
    """For each reporter, a tuple of it and the members that it cannot reach."""
    kept: tuple[MemberId, ...]
    removed: tuple[MemberId, ...]
    narrowed: tuple[tuple[str, int], ...]
    """Each criterion and how many sets were left after it; the first is the size. Empty: too many sets to count."""
    is_proven: bool
    """Whether no larger set can exist; False: the search ran out of time."""
    could_be_larger_by: float
    """By how many data members another set could be larger at most."""
    reason: str
    rule: str


class ResolutionTakenBack(Event, frozen=True):
    """The master has withdrawn its decision before any removal: the reported links have changed."""

    notice = Notice("does not remove {removed}")

    removed: tuple[MemberId, ...]
    """The members that the withdrawn decision would have removed."""
    reason: str
    rule: str


class EvacuationStarted(Event, frozen=True):
    """The master is about to remove members that it still reaches, and first moves what only they hold to others."""

    notice = Notice(
        "lets others take {partitions:partition} that only {removed} have[; no member can take {without_taker} of them]"
    )

    removed: tuple[MemberId, ...]
    """The members that will be removed."""
    partitions: int
    """How many partitions might lose data by the removal."""
    without_taker: int
    """How many of these have an owner that reaches no staying member that can hold data: they cannot be moved."""
    until: Millis
    """When the master removes the members even if something is left to move."""
    rule: str = "PX-04"


class EvacuationEnded(Event, frozen=True):
    notice = Either(
        "left",
        Notice(
            "ends the move of what only others have; {removed} still had {left:partition} after {took_ms:s}: {left}",
            WARNING,
        ),
        Notice("has let others take all that only {removed} had, after {took_ms:s}"),
    )

    removed: tuple[MemberId, ...]
    left: tuple[int, ...]
    """Partitions that may still lose data when these members are removed."""
    took_ms: Millis
    table_version: int
    rule: str = "PX-04"


class WokeUp(Event, frozen=True):
    """This member was paused. It does not serve before it knows that it still is a member."""

    notice = Notice(
        "did not run for {away_ms} ms, and serves no caller until it knows that it is still a member", WARNING, TROUBLE
    )

    away_ms: Millis
    """How long the pause was."""
    rule: str


class ServesAgain(Event, frozen=True):
    """This member was paused, and now serves again or has ended."""

    notice = Notice(
        "knows after {after_ms} ms whether it is still a member; {refused} requests were refused, and their callers ask again",
        group=VIEW,
    )

    after_ms: Millis
    """The time since the end of the pause."""
    refused: int
    """Requests that it refused: those that came meanwhile and those that waited before. Their callers ask again."""
    rule: str
