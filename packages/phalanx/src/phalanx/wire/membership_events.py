"""Events about membership: joins, views, suspicions, claims, quorum, pauses, exclusions, leaves, and other clusters."""

from __future__ import annotations

from phalanx.common.ids import Address, MemberId, Millis
from phalanx.wire.event import RecordedEvent


class JoinAttemptFailed(RecordedEvent, frozen=True):
    attempt: int
    seed: str
    reason: str
    rule: str = "EL-10"


class SeedsChanged(RecordedEvent, frozen=True):
    """Sources of seeds (names of the DNS, files) give other addresses than before, or fail in another way."""

    addresses: tuple[Address, ...]
    failures: tuple[str, ...]
    """Each source that gave nothing when it was asked, and why; empty: all have answered."""
    rule: str = "PX-41"


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


class ClusterVersionChanged(RecordedEvent, frozen=True):
    """On the master: all members may use another version of the protocol from this view on, or it is held back."""

    view_version: int
    before: int
    version: int
    is_held: bool
    """Whether an operator holds it back: no master raises it by itself."""
    rule: str


class ClusterVersionWaits(RecordedEvent, frozen=True):
    """On the master: all members speak a newer version of the protocol, and it waits for others that may come back with an older one."""

    version: int
    """The version that it would raise the cluster to."""
    waits_for: tuple[Address, ...]
    """Where these members were."""
    words: str
    """What is known of them, for how long they are waited for at most, and what to do."""
    rule: str = "PX-44"


class MajorityChanged(RecordedEvent, frozen=True):
    """This member's side has gained or lost the majority of the last stable view."""

    view_version: int
    has_majority: bool
    told: str
    """The counted votes, in words."""
    rule: str


class PromotionWaits(RecordedEvent, frozen=True):
    """The master does not replace departed owners yet, because their leases may still run."""

    gone: tuple[MemberId, ...]
    """The members of the partition table that are not in the view."""
    waits_ms: Millis
    """How long the master waits; 0: until it has learned that it is still the master."""
    rule: str


class ViewStable(RecordedEvent, frozen=True):
    """All voters of this view have installed it: from now on a majority is a majority of this view's voters."""

    view_version: int
    number: int
    """The number of this stable view: greater than that of every stable view before it."""
    voters: tuple[MemberId, ...]
    """The identities that vote: for each process the first identity that it had."""
    besides: tuple[MemberId, ...] = ()
    """The other members of the view. They hold no data, and vote only on earlier views."""
    rule: str = "EL-50 EL-63"


class ViewAccepted(RecordedEvent, frozen=True):
    """An operator declared this view stable, without the votes of members that are missing."""

    view_version: int
    members: tuple[MemberId, ...]
    before: str
    """The counted votes before that, in words."""
    rule: str


class ClusterStarted(RecordedEvent, frozen=True):
    """The cluster has as many members as it has to wait for: this member begins to serve."""

    view_version: int
    size: int
    """How many members the view has."""
    waited_for: int
    """How many members the cluster had to wait for."""
    rule: str = "DESIGN 3 minimum cluster size"


class MemberSuspected(RecordedEvent, frozen=True):
    suspect: MemberId
    reason: str
    rule: str
    silent_ms: Millis | None = None
    """How long the suspect had shown no sign of life; None: not known, or told by a member of an older release."""


class SuspicionRemoved(RecordedEvent, frozen=True):
    suspect: MemberId
    rule: str


class LinksReported(RecordedEvent, frozen=True):
    """On the master: a slave reports other unreachable members than before. All these events together say who could
    reach whom, and when."""

    reporter: MemberId
    cannot_reach: tuple[MemberId, ...]
    """All members that the reporter cannot reach now; empty: it reaches all."""
    reaches_again: tuple[MemberId, ...]
    """The members that the reporter could not reach before and reaches now."""
    rule: str


class ResolutionDecided(RecordedEvent, frozen=True):
    """Some members cannot reach each other, and the master has decided which members stay."""

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


class ResolutionTakenBack(RecordedEvent, frozen=True):
    """The master has withdrawn its decision before any removal: the reported links have changed."""

    removed: tuple[MemberId, ...]
    """The members that the withdrawn decision would have removed."""
    reason: str
    rule: str


class EvacuationStarted(RecordedEvent, frozen=True):
    """The master is about to remove members that it still reaches, and first moves what only they hold to others."""

    removed: tuple[MemberId, ...]
    """The members that will be removed."""
    partitions: int
    """How many partitions might lose data by the removal."""
    without_taker: int
    """How many of these have an owner that reaches no staying member that can hold data: they cannot be moved."""
    until: Millis
    """When the master removes the members even if something is left to move."""
    rule: str = "DESIGN 4 evacuate before you kick"


class EvacuationEnded(RecordedEvent, frozen=True):
    removed: tuple[MemberId, ...]
    left: tuple[int, ...]
    """Partitions that may still lose data when these members are removed."""
    took_ms: Millis
    table_version: int
    rule: str = "DESIGN 4 evacuate before you kick"


class JoinHeldBack(RecordedEvent, frozen=True):
    """A joiner that was removed for its broken links is admitted only after it has reached some members."""

    joiner: MemberId
    reach: tuple[MemberId, ...]
    """The members that the joiner must reach first."""
    reason: str
    rule: str


class JoinWaits(RecordedEvent, frozen=True):
    """This joiner has to reach some members before the master admits it."""

    held_back_by: MemberId
    reach: tuple[MemberId, ...]
    """The members that this joiner must reach first."""
    reason: str
    rule: str = "PD-24 PD-28"


class MemberAdmitted(RecordedEvent, frozen=True):
    joiner: MemberId
    view_version: int
    replaced: tuple[MemberId, ...]
    """Earlier incarnations on the joiner's address, removed by the same view."""
    rejoins: bool = False
    """Whether an earlier member on the joiner's address was removed."""
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
    """Members that did not acknowledge the view in time."""
    rule: str = "EL-17 EL-18"


class OutdatedViewHealed(RecordedEvent, frozen=True):
    """The master has sent its view to a member whose view is older."""

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
    """The members older than the claimer that this member does not suspect: because of them it does not agree yet."""
    rule: str


class ClaimEnded(RecordedEvent, frozen=True):
    claim_id: int
    outcome: str
    left_out: tuple[MemberId, ...]
    """The members that the claimer asked and that are not in the view which its claim made."""
    took_ms: Millis
    rule: str


class ViewsDiverged(RecordedEvent, frozen=True):
    """This member has sent an explicit suspicion, or obeyed one: the views of the two members have diverged."""

    peer: MemberId
    what: str
    rule: str


class StaleMessageIgnored(RecordedEvent, frozen=True):
    peer: MemberId
    what: str
    rule: str


class ComplaintSent(RecordedEvent, frozen=True):
    """A heartbeat came from a process that is not in this member's view, and this member complained to its master."""

    complainee: MemberId
    """The sender of the heartbeat."""
    master: MemberId
    rule: str


class ComplaintJudged(RecordedEvent, frozen=True):
    complainer: MemberId
    complainee: MemberId
    suspicion_sent_to: tuple[MemberId, ...]
    rule: str


class MemberQuestioned(RecordedEvent, frozen=True):
    """Another member suspects one that this member does not watch; this one asks it whether it is alive."""

    suspect: MemberId
    reported_by: MemberId
    rule: str


class OtherSideFound(RecordedEvent, frozen=True):
    """This master has found a cluster of the same name that has no member in common with its own."""

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


class LeaveWaits(RecordedEvent, frozen=True):
    """The last members that hold data are to leave, and stay until somebody takes it: others went without having left."""

    leavers: tuple[MemberId, ...]
    replicas_to_hand_over: int
    missing: tuple[MemberId, ...]
    """Members that went without having left, and may come back."""
    rule: str = "PX-50"


class LastMembersLeave(RecordedEvent, frozen=True):
    """All members that hold data were told to leave, or the others left before: the data ends with them."""

    leavers: tuple[MemberId, ...]
    replicas_held: int
    """How many replicas go with them."""
    rule: str = "PX-50"


class LiteChangeStarted(RecordedEvent, frozen=True):
    """A member is to become lite, which means to hold no data. First others take over its replicas."""

    subject: MemberId
    replicas_to_hand_over: int
    rule: str = "DESIGN 4 lite members"


class LiteChanged(RecordedEvent, frozen=True):
    """A live member became lite, so that it holds no data, or a data member again."""

    subject: MemberId
    lite: bool
    view_version: int
    rule: str = "DESIGN 4 lite members"


class Left(RecordedEvent, frozen=True):
    view_version: int
    rule: str = "DESIGN 6 graceful shutdown"


class Ejected(RecordedEvent, frozen=True):
    """The cluster took this member for dead and went on without it. Its process comes back as a new member."""

    by: MemberId
    view_version: int
    rule: str


class WokeUp(RecordedEvent, frozen=True):
    """This member was paused. It does not serve before it knows that it still is a member."""

    away_ms: Millis
    """How long the pause was."""
    rule: str


class ServesAgain(RecordedEvent, frozen=True):
    """This member was paused, and now serves again or has ended."""

    after_ms: Millis
    """The time since the end of the pause."""
    refused: int
    """Requests that it refused: those that came meanwhile and those that waited before. Their callers ask again."""
    rule: str


MembershipEvent = (
    JoinAttemptFailed | SeedsChanged | Joined | JoinGivenUp | ViewInstalled | ClusterVersionChanged
    | ClusterVersionWaits | MajorityChanged
    | PromotionWaits | ViewStable
    | ViewAccepted | ClusterStarted | MemberSuspected | SuspicionRemoved | LinksReported | ResolutionDecided
    | ResolutionTakenBack | EvacuationStarted | EvacuationEnded | JoinHeldBack | JoinWaits | MemberAdmitted
    | JoinRequestRefused | MemberRemoved | JoinAnswered | OutdatedViewHealed | ClaimStarted | ClaimAnswered
    | ClaimEnded | ViewsDiverged | StaleMessageIgnored | ComplaintSent | ComplaintJudged | MemberQuestioned
    | OtherSideFound | LeaveStarted | LeaveWaits | LastMembersLeave | LiteChangeStarted | LiteChanged | Left | Ejected | WokeUp
    | ServesAgain
)  # fmt: skip
