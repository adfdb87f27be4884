"""Events about joining and leaving: how a member gets in, begins to hold data, and goes in good order."""

from __future__ import annotations

from phalanx.common.ids import Address, MemberId
from phalanx.wire.event import DEBUG, TROUBLE, VIEW, WARNING, Either, Event, Notice


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


class JoinRequestRefused(Event, frozen=True):
    notice = Notice("refuses {joiner}")

    joiner: MemberId
    reason: str
    rule: str


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


class LeaveStarted(Event, frozen=True):
    notice = Either(
        "keeps",
        Notice("lets {leaver} stop, which keeps what it has in its folder and comes back", group=VIEW),
        Notice("lets {leaver} leave, which has {replicas_to_hand_over} replicas to hand over", group=VIEW),
    )

    leaver: MemberId
    replicas_to_hand_over: int
    """0: none, or it keeps them."""
    rule: str = "PX-01"
    keeps: bool = False


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
    """All members that hold data were told to leave, or the others left before: the data ends with them, or stays in their folders."""

    notice = Either(
        "has_folder",
        Notice(
            "lets the last members that hold data leave, {leavers}: what they hold stays in the folders of those that have one, "
            "{replicas_held:replica}"
        ),
        Notice(
            "lets the last members that hold data leave, {leavers}: the data ends with them, {replicas_held:replica}"
        ),
    )

    leavers: tuple[MemberId, ...]
    replicas_held: int
    """How many replicas go with them."""
    has_folder: bool = False
    """Whether members have folders, and the disk of one of those that leave works."""
    rule: str = "PX-50"


class Left(Event, frozen=True):
    notice = Notice("left {in_view}", DEBUG, VIEW)

    view_version: int
    rule: str = "PX-01"


class ClusterStops(Event, frozen=True):
    """More than half of the members stop, and come back: the list and the table stay as they are."""

    notice = Notice(
        "lets {members} stop as they are: the cluster comes back with any majority of its {size} members", group=VIEW
    )

    members: tuple[MemberId, ...]
    size: int
    rule: str = "DU-58"


class Stopped(Event, frozen=True):
    """A member has stopped within its member list: it has its vote, and what it holds in its folder."""

    notice = Notice("stopped {in_view}: its folder keeps what it holds", group=VIEW)

    view_version: int
    rule: str = "DU-58"


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
