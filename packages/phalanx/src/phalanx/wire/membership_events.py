"""Events about membership: joins, views, suspicions, claims, quorum, pauses, exclusions, leaves, and other clusters."""

from __future__ import annotations

from phalanx.common.ids import Address, MemberId, Millis
from phalanx.wire.event import DEBUG, REPAIR, TROUBLE, VIEW, WARNING, Either, Event, Notice


class JoinAttemptFailed(Event, frozen=True):
    notice = Notice(
        "attempt {attempt} to join through {seed} failed",
        WARNING,
        log="Join attempt {attempt} from {this} to {seed} failed. Retrying ({reason})",
    )

    attempt: int
    seed: str
    reason: str
    rule: str = "EL-10"


class SeedsChanged(Event, frozen=True):
    """Sources of seeds (names of the DNS, files) give other addresses than before, or fail in another way."""

    notice = Either(
        "failures",
        Notice("does not find all seeds: {failures}[; it has {addresses}]", WARNING),
        Notice("finds seeds: {addresses}"),
    )

    addresses: tuple[Address, ...]
    failures: tuple[str, ...]
    """Each source that gave nothing when it was asked, and why; empty: all have answered."""
    rule: str = "PX-41"


class Joined(Event, frozen=True):
    notice = Notice(
        "joined {master} {in_view}",
        group=VIEW,
        log="{this} joined the cluster. Membership={members:#} members, ver {view_version}",
    )

    view_version: int
    master: MemberId
    members: tuple[MemberId, ...]
    rule: str = "EL-13"


class JoinGivenUp(Event, frozen=True):
    notice = Notice("gives up joining")

    reason: str
    rule: str = "EL-11"


class ViewInstalled(Event, frozen=True):
    notice = Notice("installs member list {view_version}: {members}", group=VIEW)

    view_version: int
    maker: MemberId
    master: MemberId
    members: tuple[MemberId, ...]
    rule: str


class ClusterVersionChanged(Event, frozen=True):
    """On the master: all members may use another version of the protocol from this view on, or it is held back."""

    notice = Either(
        "is_held",
        Notice("holds the cluster version back at {version} {in_view}"),
        Notice("says that members use cluster version {version} {in_view}, after {before}"),
    )

    view_version: int
    before: int
    version: int
    is_held: bool
    """Whether an operator holds it back: no master raises it by itself."""
    rule: str


class ClusterVersionWaits(Event, frozen=True):
    """On the master: all members speak a newer version of the protocol, and it waits for others that may come back with an older one."""

    notice = Notice("does not raise the cluster version to {version} yet: {words}")

    version: int
    """The version that it would raise the cluster to."""
    waits_for: tuple[Address, ...]
    """Where these members were."""
    words: str
    """What is known of them, for how long they are waited for at most, and what to do."""
    rule: str = "PX-44"


class MajorityChanged(Event, frozen=True):
    """This member's side has gained or lost the majority of the last stable view."""

    notice = Either(
        "has_majority",
        Notice("has the majority again {in_view}", group=VIEW),
        Notice("does not have the majority {in_view}: {told}", WARNING, TROUBLE),
    )

    view_version: int
    has_majority: bool
    told: str
    """The counted votes, in words."""
    rule: str


class PromotionWaits(Event, frozen=True):
    """The master does not replace departed owners yet, because their leases may still run."""

    notice = Either(
        "waits_ms",
        Notice(
            "does not give the data of {gone} to others yet: it waits for {waits_ms:s}, until no lease of theirs runs any more",
            group=REPAIR,
            is_detail=True,
        ),
        Notice(
            "does not give the data of {gone} to others yet: it waits until it has heard that it is still the master",
            group=REPAIR,
            is_detail=True,
        ),
    )

    gone: tuple[MemberId, ...]
    """The members of the partition table that are not in the view."""
    waits_ms: Millis
    """How long the master waits; 0: until it has learned that it is still the master."""
    rule: str


class ViewStable(Event, frozen=True):
    """All voters of this view have installed it: from now on a majority is a majority of this view's voters."""

    notice = Notice(
        "knows that all members have member list {view_version}: majorities are of {voters}[; without data: {besides}]",
        DEBUG,
        VIEW,
        is_detail=True,
    )

    view_version: int
    number: int
    """The number of this stable view: greater than that of every stable view before it."""
    voters: tuple[MemberId, ...]
    """The identities that vote: for each process the first identity that it had."""
    besides: tuple[MemberId, ...] = ()
    """The other members of the view. They hold no data, and vote only on earlier views."""
    rule: str = "EL-50 EL-63"


class ViewAccepted(Event, frozen=True):
    """An operator declared this view stable, without the votes of members that are missing."""

    notice = Notice(
        "counts majorities of member list {view_version} from now on, because an operator said so, although {before}",
        WARNING,
    )

    view_version: int
    members: tuple[MemberId, ...]
    before: str
    """The counted votes before that, in words."""
    rule: str


class ClusterStarted(Event, frozen=True):
    """The cluster has as many members as it has to wait for: this member begins to serve."""

    notice = Notice(
        "begins to work {in_view}: {size:member}",
        group=VIEW,
        is_detail=True,
        log="{this} begins to work: the cluster has had the {waited_for} members that it waited for",
    )

    view_version: int
    size: int
    """How many members the view has."""
    waited_for: int
    """How many members the cluster had to wait for."""
    rule: str = "PX-03"


class MemberSuspected(Event, frozen=True):
    notice = Notice("suspects {suspect}", WARNING, TROUBLE, log="{this} suspects {suspect}: {reason}")

    suspect: MemberId
    reason: str
    rule: str
    silent_ms: Millis | None = None
    """How long the suspect had shown no sign of life; None: not known, or told by a member of an older release."""


class SuspicionRemoved(Event, frozen=True):
    notice = Notice("no longer suspects {suspect}", group=VIEW)

    suspect: MemberId
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


class JoinHeldBack(Event, frozen=True):
    """A joiner that was removed for its broken links is admitted only after it has reached some members."""

    notice = Notice("does not admit {joiner} yet[; it has to reach {reach}]", WARNING, TROUBLE)

    joiner: MemberId
    reach: tuple[MemberId, ...]
    """The members that the joiner must reach first."""
    reason: str
    rule: str


class JoinWaits(Event, frozen=True):
    """This joiner has to reach some members before the master admits it."""

    notice = Notice("waits to be admitted by {held_back_by}[; it has to reach {reach}]", WARNING)

    held_back_by: MemberId
    reach: tuple[MemberId, ...]
    """The members that this joiner must reach first."""
    reason: str
    rule: str = "PD-24 PD-28"


class MemberAdmitted(Event, frozen=True):
    notice = Notice("admits {joiner}[ instead of {replaced}] {in_view}", group=VIEW)

    joiner: MemberId
    view_version: int
    replaced: tuple[MemberId, ...]
    """Earlier incarnations on the joiner's address, removed by the same view."""
    rejoins: bool = False
    """Whether an earlier member on the joiner's address was removed."""
    rule: str = "CS-10"


class JoinRequestRefused(Event, frozen=True):
    notice = Notice("refuses {joiner}")

    joiner: MemberId
    reason: str
    rule: str


class MemberRemoved(Event, frozen=True):
    notice = Notice("removes {removed} {in_view}", group=TROUBLE)

    removed: MemberId
    view_version: int
    reason: str
    rule: str


class JoinAnswered(Event, frozen=True):
    notice = Notice(
        "answers {joiner} with member list {view_version}[; late: {late}]",
        DEBUG,
        VIEW,
        is_detail=True,
        log="Sending join response from {this} to {joiner}",
    )

    joiner: MemberId
    view_version: int
    late: tuple[MemberId, ...]
    """Members that did not acknowledge the view in time."""
    rule: str = "EL-17 EL-18"


class OutdatedViewHealed(Event, frozen=True):
    """The master has sent its view to a member whose view is older."""

    notice = Notice("sends member list {view_version} to {member_behind}, which had {its_version}", is_detail=True)

    member_behind: MemberId
    its_version: int
    view_version: int
    rule: str = "EL-32"


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


class MemberQuestioned(Event, frozen=True):
    """Another member suspects one that this member does not watch; this one asks it whether it is alive."""

    notice = Notice("asks {suspect} whether it lives, because {reported_by} suspects it", is_detail=True)

    suspect: MemberId
    reported_by: MemberId
    rule: str


class OtherSideFound(Event, frozen=True):
    """This master has found a cluster of the same name that has no member in common with its own."""

    notice = Notice(
        "finds another side of the cluster, with {other_master} as its master and {other_size:member}, and has {size:member} itself: {decision}",
        group=TROUBLE,
    )

    other_master: MemberId
    other_size: int
    other_version: int
    other_has_data: bool
    view_version: int
    size: int
    has_data: bool
    decision: str
    rule: str


class LeaveStarted(Event, frozen=True):
    notice = Notice("lets {leaver} leave, which has {replicas_to_hand_over} replicas to hand over", group=VIEW)

    leaver: MemberId
    replicas_to_hand_over: int
    rule: str = "PX-01"


class LeaveWaits(Event, frozen=True):
    """The last members that hold data are to leave, and stay until somebody takes it: others went without having left."""

    notice = Notice(
        "lets {leavers} stay for now, because no member can take over the {replicas_to_hand_over} replicas that only they hold; {missing} went without having left, and can come back: start it again, or another member",
        WARNING,
        VIEW,
    )

    leavers: tuple[MemberId, ...]
    replicas_to_hand_over: int
    missing: tuple[MemberId, ...]
    """Members that went without having left, and may come back."""
    rule: str = "PX-50"


class LastMembersLeave(Event, frozen=True):
    """All members that hold data were told to leave, or the others left before: the data ends with them."""

    notice = Notice(
        "lets the last members that hold data leave, {leavers}: the data ends with them, {replicas_held:replica}"
    )

    leavers: tuple[MemberId, ...]
    replicas_held: int
    """How many replicas go with them."""
    rule: str = "PX-50"


class LiteChangeStarted(Event, frozen=True):
    """A member is to become lite, which means to hold no data. First others take over its replicas."""

    notice = Notice("lets {subject} hand over {replicas_to_hand_over} replicas, to hold no data any more")

    subject: MemberId
    replicas_to_hand_over: int
    rule: str = "PX-02"


class LiteChanged(Event, frozen=True):
    """A live member became lite, so that it holds no data, or a data member again."""

    notice = Either(
        "lite",
        Notice("says that {subject} holds no data any more {in_view}", group=VIEW),
        Notice("says that {subject} can hold data from now on {in_view}", group=VIEW),
    )

    subject: MemberId
    lite: bool
    view_version: int
    rule: str = "PX-02"


class Left(Event, frozen=True):
    notice = Notice("left {in_view}", DEBUG, VIEW)

    view_version: int
    rule: str = "PX-01"


class Ejected(Event, frozen=True):
    """The cluster took this member for dead and went on without it. Its process comes back as a new member."""

    notice = Notice(
        "learns from {by} that others went on without it {in_view}",
        WARNING,
        TROUBLE,
        log="{this}: the cluster went on without this member; coming back as a new one",
    )

    by: MemberId
    view_version: int
    rule: str


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
