"""Events about views: the member lists that are installed, their majorities, and what begins with them."""

from __future__ import annotations

from phalanx.common.ids import Address, MemberId, Millis
from phalanx.wire.event import DEBUG, REPAIR, TROUBLE, VIEW, WARNING, Either, Event, Notice


class ViewInstalled(Event, frozen=True):
    notice = Notice("installs member list {view_version}: {members}", group=VIEW)

    view_version: int
    maker: MemberId
    master: MemberId
    members: tuple[MemberId, ...]
    rule: str


class OutdatedViewHealed(Event, frozen=True):
    """The master has sent its view to a member whose view is older."""

    notice = Notice("sends member list {view_version} to {member_behind}, which had {its_version}", is_detail=True)

    member_behind: MemberId
    its_version: int
    view_version: int
    rule: str = "EL-32"


class MemberForgotten(Event, frozen=True):
    """An operator has said that a member does not come back which has in its folder what it held."""

    notice = Notice("does not await {forgotten} any more: an operator has forgotten it", group=VIEW)

    forgotten: MemberId
    rule: str = "DU-59"


class MemberRemoved(Event, frozen=True):
    notice = Notice("removes {removed} {in_view}", group=TROUBLE)

    removed: MemberId
    view_version: int
    reason: str
    rule: str


class Ejected(Event, frozen=True):
    """The cluster took this member for dead and went on without it. Its process comes back as a new member."""

    notice = Notice(
        "learns from {by} that others went on without it {in_view}",
        WARNING,
        TROUBLE,
        log="{this}: the cluster continued without this member, which joins again as a new one",
    )

    by: MemberId
    view_version: int
    rule: str


class ClusterStarted(Event, frozen=True):
    """The cluster has as many members as it has to wait for: this member begins to serve."""

    notice = Notice(
        "begins to work {in_view}: {size:member}",
        group=VIEW,
        is_detail=True,
        log="{this} begins to work: the cluster has the {waited_for} members that it waited for",
    )

    view_version: int
    size: int
    """How many members the view has."""
    waited_for: int
    """How many members the cluster had to wait for."""
    rule: str = "PX-03"


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
    number: int = 0
    """The number of the view among the stable ones."""
    voters: tuple[MemberId, ...] = ()
    """The members whose votes count from now on."""


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
    """The master does not replace departed owners yet: their leases can still run, or the majority has to hear that they are gone."""

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
