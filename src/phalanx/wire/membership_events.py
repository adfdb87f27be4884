"""Events about members: who came, leads, was suspected, slept and went; and about clusters that met."""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.wire.event import RecordedEvent


class JoinAttemptFailed(RecordedEvent, frozen=True):
    attempt: int
    seed: str
    reason: str
    rule: str = "EL-10"


class Joined(RecordedEvent, frozen=True):
    view_version: int
    master: MemberId
    members: tuple[MemberId, ...]
    rule: str = "EL-13"


class JoinGivenUp(RecordedEvent, frozen=True):
    reason: str
    rule: str = "EL-11"


class ViewInstalled(RecordedEvent, frozen=True):
    view_version: int
    maker: MemberId
    master: MemberId
    members: tuple[MemberId, ...]
    rule: str


class MajorityChanged(RecordedEvent, frozen=True):
    """Whether this member's side has the majority of the last stable view is not what it was."""

    view_version: int
    has_majority: bool
    told: str
    """The numbers, in words."""
    rule: str


class PromotionWaits(RecordedEvent, frozen=True):
    """The master gives what members held that are gone to others only when no lease on it can run any more."""

    gone: tuple[MemberId, ...]
    waits_ms: Millis
    """0: until it has heard that it is still the master itself."""
    rule: str


class ViewStable(RecordedEvent, frozen=True):
    """All voters of this view have it: from now on majority means majority of it."""

    view_version: int
    number: int
    """Greater than that of every stable view before it."""
    voters: tuple[MemberId, ...]
    """The identities under which they vote: of a process the first that it had."""
    besides: tuple[MemberId, ...] = ()
    """Members that hold no data: they vote on earlier views only."""
    rule: str = "EL-50 EL-63"


class ViewAccepted(RecordedEvent, frozen=True):
    """An operator said that this view is the stable one, whatever became of the members of others."""

    view_version: int
    members: tuple[MemberId, ...]
    before: str
    """What was missing."""
    rule: str


class ClusterStarted(RecordedEvent, frozen=True):
    """The cluster has the members that it was to wait for: this member begins to work."""

    view_version: int
    size: int
    waited_for: int
    rule: str = "DESIGN 3 minimum cluster size"


class MemberSuspected(RecordedEvent, frozen=True):
    suspect: MemberId
    reason: str
    rule: str


class SuspicionRemoved(RecordedEvent, frozen=True):
    suspect: MemberId
    rule: str


class LinksReported(RecordedEvent, frozen=True):
    """On the master: a slave's list of those that it cannot reach has changed. One after another they tell who could talk
    to whom, and when."""

    reporter: MemberId
    cannot_reach: tuple[MemberId, ...]
    """All of them; nobody: it reaches everybody."""
    reaches_again: tuple[MemberId, ...]
    rule: str


class ResolutionDecided(RecordedEvent, frozen=True):
    """The master has decided who stays, of members that cannot all reach each other."""

    links: tuple[tuple[MemberId, MemberId], ...]
    """The broken ones that were decided about."""
    reports: tuple[tuple[MemberId, ...], ...]
    """Each reporter, and behind it those that it cannot reach."""
    kept: tuple[MemberId, ...]
    removed: tuple[MemberId, ...]
    narrowed: tuple[tuple[str, int], ...]
    """How many sets of the greatest size there were, and how many were left after each further criterion."""
    is_proven: bool
    """Whether no larger set can exist; else the time for the search was over."""
    could_be_larger_by: float
    """By so much at most, in data members."""
    reason: str
    rule: str


class ResolutionTakenBack(RecordedEvent, frozen=True):
    """What members reported has changed before anybody was removed."""

    removed: tuple[MemberId, ...]
    """Who was to be."""
    reason: str
    rule: str


class EvacuationStarted(RecordedEvent, frozen=True):
    """Members are about to be removed that still reach the master: others take what only they hold."""

    removed: tuple[MemberId, ...]
    partitions: int
    """Of how many something might be lost."""
    without_taker: int
    """Of these, so many have an owner that reaches nobody who stays and can hold data."""
    until: Millis
    rule: str = "DESIGN 4 evacuate before you kick"


class EvacuationEnded(RecordedEvent, frozen=True):
    removed: tuple[MemberId, ...]
    left: tuple[int, ...]
    """Partitions of which something may be lost when these members go."""
    took_ms: Millis
    table_version: int
    rule: str = "DESIGN 4 evacuate before you kick"


class JoinHeldBack(RecordedEvent, frozen=True):
    """A joiner was removed before because it could not reach others, and has to show first that it can."""

    joiner: MemberId
    reach: tuple[MemberId, ...]
    reason: str
    rule: str


class JoinWaits(RecordedEvent, frozen=True):
    """This joiner has to reach some members before the master admits it."""

    held_back_by: MemberId
    reach: tuple[MemberId, ...]
    reason: str
    rule: str = "PD-24 PD-28"


class MemberAdmitted(RecordedEvent, frozen=True):
    joiner: MemberId
    view_version: int
    replaced: tuple[MemberId, ...]
    """Earlier incarnations on the joiner's address, removed by the same view."""
    rejoins: bool = False
    """Whether a member on its address was removed before."""
    rule: str = "CS-10"


class JoinRequestRefused(RecordedEvent, frozen=True):
    joiner: MemberId
    reason: str
    rule: str


class MemberRemoved(RecordedEvent, frozen=True):
    removed: MemberId
    view_version: int
    reason: str
    rule: str


class JoinAnswered(RecordedEvent, frozen=True):
    joiner: MemberId
    view_version: int
    late: tuple[MemberId, ...]
    """Members that had not acknowledged the view in time."""
    rule: str = "EL-17 EL-18"


class OutdatedViewHealed(RecordedEvent, frozen=True):
    member_behind: MemberId
    its_version: int
    view_version: int
    rule: str = "EL-32"


class ClaimStarted(RecordedEvent, frozen=True):
    claim_id: int
    view_version: int
    suspected: tuple[MemberId, ...]
    rule: str


class ClaimAnswered(RecordedEvent, frozen=True):
    claimer: MemberId
    accepted: bool
    not_suspected: tuple[MemberId, ...]
    """Older members that this member does not suspect: why it does not agree yet."""
    rule: str


class ClaimEnded(RecordedEvent, frozen=True):
    claim_id: int
    outcome: str
    left_out: tuple[MemberId, ...]
    took_ms: Millis
    rule: str


class ViewsDiverged(RecordedEvent, frozen=True):
    """An explicit suspicion was sent or obeyed."""

    peer: MemberId
    what: str
    rule: str


class StaleMessageIgnored(RecordedEvent, frozen=True):
    peer: MemberId
    what: str
    rule: str


class ComplaintSent(RecordedEvent, frozen=True):
    """A heartbeat came from somebody who is not in this member's list."""

    complainee: MemberId
    master: MemberId
    rule: str


class ComplaintJudged(RecordedEvent, frozen=True):
    complainer: MemberId
    complainee: MemberId
    suspicion_sent_to: tuple[MemberId, ...]
    rule: str


class MemberQuestioned(RecordedEvent, frozen=True):
    """Another member suspects one that this member does not watch, and it is asked whether it lives."""

    suspect: MemberId
    reported_by: MemberId
    rule: str


class OtherSideFound(RecordedEvent, frozen=True):
    """A cluster of the same name with no member in common."""

    other_master: MemberId
    other_size: int
    other_version: int
    other_has_data: bool
    view_version: int
    size: int
    has_data: bool
    decision: str
    rule: str


class LeaveStarted(RecordedEvent, frozen=True):
    leaver: MemberId
    replicas_to_hand_over: int
    rule: str = "DESIGN 6 graceful shutdown"


class LiteChangeStarted(RecordedEvent, frozen=True):
    """A member that held data is to hold none: others take its replicas over first."""

    subject: MemberId
    replicas_to_hand_over: int
    rule: str = "DESIGN 4 lite members"


class LiteChanged(RecordedEvent, frozen=True):
    """A live member became one that holds no data (`lite`), or one that does."""

    subject: MemberId
    lite: bool
    view_version: int
    rule: str = "DESIGN 4 lite members"


class Left(RecordedEvent, frozen=True):
    view_version: int
    rule: str = "DESIGN 6 graceful shutdown"


class Ejected(RecordedEvent, frozen=True):
    """This member was taken for dead and others went on without it; it comes back as a new member."""

    by: MemberId
    view_version: int
    rule: str


class WokeUp(RecordedEvent, frozen=True):
    """This member did not run for a while, and does not serve before it knows that it still is a member."""

    away_ms: Millis
    rule: str


class ServesAgain(RecordedEvent, frozen=True):
    """A member that was away serves again; or it is over."""

    after_ms: Millis
    """Since it woke up."""
    refused: int
    """Requests that came meanwhile, or had come before: their callers ask again."""
    rule: str


MembershipEvent = (
    JoinAttemptFailed | Joined | JoinGivenUp | ViewInstalled | MajorityChanged | PromotionWaits | ViewStable
    | ViewAccepted | ClusterStarted | MemberSuspected | SuspicionRemoved | LinksReported | ResolutionDecided
    | ResolutionTakenBack | EvacuationStarted | EvacuationEnded | JoinHeldBack | JoinWaits | MemberAdmitted
    | JoinRequestRefused | MemberRemoved | JoinAnswered | OutdatedViewHealed | ClaimStarted | ClaimAnswered
    | ClaimEnded | ViewsDiverged | StaleMessageIgnored | ComplaintSent | ComplaintJudged | MemberQuestioned
    | OtherSideFound | LeaveStarted | LiteChangeStarted | LiteChanged | Left | Ejected | WokeUp | ServesAgain
)  # fmt: skip
