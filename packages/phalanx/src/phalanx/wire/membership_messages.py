"""Messages about membership, and the handshake on every connection (docs/protocol/membership.md)."""

from __future__ import annotations

from phalanx.common.departure import Departures
from phalanx.common.former_incarnation import Former
from phalanx.common.ids import Address, MemberId, Millis
from phalanx.common.quorum import QuorumRecord, VoterHistory
from phalanx.common.store import StoreStart
from phalanx.common.traits import Traits
from phalanx.common.versions import Release
from phalanx.common.view import MembersView
from phalanx.wire.message import WireMessage

# --- handshake: the first frame each way on every connection --------------------------------------------------------


class Hello(WireMessage, tag=1, frozen=True):
    """From the connecting side: its identity, and the member that it wants to reach."""

    protocol: int
    """The oldest version of the protocol that the connecting side speaks."""
    cluster: str
    sender: str
    """A member's identity, or the random name of a client. A sender's new connection replaces its old one, except that one to an
    address does not replace one to a member."""
    receiver: str
    """The identity of the wanted member, or only its address where its incarnation is not known yet."""
    nonce: bytes = b""
    """Random bytes for this connection; empty: the connecting side has no secret of the cluster."""
    reached: str = ""
    """The numeric address that the socket is connected to: what a host name in `receiver` resolved to."""
    newest: int = 0
    """The newest version that the connecting side speaks; 0: `protocol` alone."""
    onward: str = ""
    """The member to which the accepting side is to pass on, byte for byte, what follows its Welcome, and pass back what that
    answers; empty: it is meant itself."""


class Welcome(WireMessage, tag=2, frozen=True):
    """From the accepting side: its identity."""

    member: MemberId
    proof: bytes = b""
    """The proof that the accepting side has the cluster's secret; empty: there is no secret."""
    protocol: int = 0
    """The version that both sides speak from now on."""


class Refused(WireMessage, tag=3, frozen=True):
    """From the accepting side: it refuses the connection for this reason, and closes it."""

    reason: str
    proof: bytes = b""
    """The proof that the refusal comes from a side with the cluster's secret; empty: there is no secret, or the
    connecting side has not proved that it has it."""


class Challenge(WireMessage, tag=4, frozen=True):
    """From the accepting side, which has the cluster's secret: prove that you have it, too."""

    member: MemberId
    """The accepting member."""
    nonce: bytes
    """Random bytes for this connection."""
    protocol: int = 0
    """As in `Welcome`. The proofs cover it."""


class Proof(WireMessage, tag=5, frozen=True):
    """From the connecting side: the proof that it has the cluster's secret, over both nonces and both identities."""

    proof: bytes


# --- membership ---------------------------------------------------------------------------------------------------


class JoinRequest(WireMessage, tag=10, frozen=True):
    """Ask to be admitted. Carries all settings on which members must agree."""

    request_id: int
    member: MemberId
    cluster: str
    protocol: int
    """The oldest version of the protocol that the joiner speaks, as in `release`, which decides."""
    partition_count: int
    traits: Traits = Traits()
    reaches: tuple[MemberId, ...] = ()
    """The members that the joiner had to reach first and that have just answered it."""
    lease_ms: Millis = 0
    memory: VoterHistory | None = None
    """What the joiner's process knows of stable views; None: it was no member before."""
    known: tuple[Address, ...] = ()
    """Addresses where members of this cluster can be: the joiner's seeds, and former members that it remembers."""
    release: Release = Release()
    """What the joiner's build speaks."""
    departures: Departures = ()
    """How members went, as far as the joiner's process knows from an incarnation before."""
    may_found: bool = True
    """Whether it can form a cluster that the member asked does not expect: False where it names all others as seeds, and not itself."""
    voter: MemberId = MemberId("")
    """The identity of an incarnation before, for which the joiner's process votes; empty: there is none."""
    stored_root: MemberId = MemberId("")
    """Who founded the cluster whose data the joiner has read from its folder; empty: it has read none."""
    store: StoreStart | None = None
    """The joiner's folder; None: it has none."""


class JoinResponse(WireMessage, tag=11, frozen=True):
    """Admitted: the view that contains the joiner."""

    request_id: int
    view: MembersView
    has_started: bool = True
    """Whether the cluster has ever had as many members as it waits for before it starts."""
    clock: int = 0
    """As in `Heartbeat`."""
    footing: QuorumRecord | None = None
    """The quorum state of the view."""
    former: Former = ()
    """Addresses of former members, where another side of the cluster can be: the joiner has to look there, too."""
    age_ms: Millis = 0
    """How long the cluster has existed at least."""
    departures: Departures = ()
    """How members went."""


class JoinRedirect(WireMessage, tag=12, frozen=True):
    """Not admitted here: only the master admits members. Names the master."""

    request_id: int
    master: MemberId


class JoinRefused(WireMessage, tag=13, frozen=True):
    """Not admitted: permanently, or (`retry`) for now."""

    request_id: int
    retry: bool
    reason: str
    in_cluster: bool
    """Whether the refusing member is in a cluster to which the joiner can belong: then it must form no other."""
    come_back: bool = False
    """This incarnation was a member and was removed: a new incarnation of the process can ask."""
    waits: bool = False
    """The reason is the joiner's broken links: it keeps asking until they work."""
    reach: tuple[MemberId, ...] = ()
    """The members that the joiner must first reach and hear from."""
    release: Release | None = None
    """What the refusing member's build speaks, if it is in no cluster; None: not told."""
    ends: bool = False
    """The joiner's process has to end, also if it comes back from its folder or another side: nobody will ever admit it."""


class MembersUpdate(WireMessage, tag=14, frozen=True):
    """The master publishes its whole view, so that the next update repairs a missed one."""

    view: MembersView
    has_started: bool = True
    """As in `JoinResponse`."""
    footing: QuorumRecord | None = None
    """The quorum state of the view."""
    former: Former = ()
    """As in `JoinResponse`."""
    departures: Departures = ()
    """As in `JoinResponse`."""


class MembersAck(WireMessage, tag=15, frozen=True):
    """The sender has installed a view of this version, or a newer one."""

    version: int
    maker: str = ""
    """The maker of the installed view; empty: not told."""


class Heartbeat(WireMessage, tag=16, frozen=True):
    """The sender is alive and has this view."""

    view_version: int
    view_maker: MemberId
    wants_answer: bool = False
    """Ask the receiver to answer: in large clusters it sends no heartbeats here by itself."""
    clock: int = 0
    """The sender's reading of the grid's clock; 0: not told."""
    suspects: tuple[MemberId, ...] = ()
    """To the master: all members that the sender cannot reach. To others: always empty (A.6-1)."""
    is_stable: bool = False
    """From the master: whether all voters of this view have installed it."""


class ExplicitSuspicion(WireMessage, tag=17, frozen=True):
    """Our views have diverged: the receiver must suspect the sender, and continue without it.

    `about_…` names the view of the receiver that this refers to. A receiver with another view ignores the message.
    """

    about_version: int
    about_maker: MemberId
    view: MembersView | None
    """The sender's view; None: it has joined no cluster."""
    come_back: bool = False
    """The sender is the receiver's master, and has removed it only for its broken links to others: the receiver must
    not continue alone, but ask for admission again."""


class MastershipClaim(WireMessage, tag=18, frozen=True):
    """The sender suspects all older members: does the receiver agree that it becomes the master?"""

    claim_id: int


class ClaimAnswer(WireMessage, tag=19, frozen=True):
    """The view of the member that was asked, and whether it agrees yet."""

    claim_id: int
    accepted: bool
    view: MembersView | None
    """The sender's view; None: not told. A refusal that will be repeated has no view: large clusters send many of
    them."""
    is_joining: bool = False
    """The sender was admitted but does not know it yet. It will ask to join again: the claimer does not wait for it."""
    memory: VoterHistory | None = None
    """If it agrees: what it knows of stable views."""
    bound_ms: Millis = 0
    """If it agrees: for how much longer its promise binds it to follow only its former master."""


class LeaveRequest(WireMessage, tag=20, frozen=True):
    """The sender wants to leave: the master must first move its replicas, and then publish a view without it."""

    keeps: bool = False
    """Whether it comes back with what it has in its folder: then only ownership moves, and what nobody else has in sync."""
    because_of_disk: bool = False
    """Whether nobody told it to: its disk has failed, and it holds nothing any more (DU-41)."""


class StopOrder(WireMessage, tag=190, frozen=True):
    """The master tells a member that stops to end as it is, in the list and with its vote. Its answer is the same message."""


class LiteRequest(WireMessage, tag=39, frozen=True):
    """The sender wants to become lite, or a data member again. A lite member's replicas are moved first."""

    lite: bool
    """Whether the sender wants to hold no data; False: it wants to hold its share."""


class MasterConfirmation(WireMessage, tag=21, frozen=True):
    """From a slave to its master: it still follows the master, and has this view and this table of it."""

    view_version: int
    view_maker: MemberId
    table_version: int
    """The version of the table that the slave has and that the receiver confirmed as the master; -1: none."""
    wants_answer: bool = False
    """As in `Heartbeat`."""
    clock: int = 0
    """As in `Heartbeat`."""
    release: Release | None = None
    """Not used any more: the view says what each member's build speaks."""
    departures: Departures | None = None
    """How members went, as the slave knows it, while it speaks a newer version than the cluster's; None: not told."""
    store: StoreStart | None = None
    """The slave's folder, where it tells how members went: an older master did not name it. None: it has none."""


class LeaseRequest(WireMessage, tag=140, frozen=True):
    """From a slave to its master, with each confirmation: extend the slave's lease to acknowledge writes."""

    view_version: int
    view_maker: MemberId
    clock: Millis
    """The time of the slave's clock now."""
    echo: Millis
    """The latest stamp of this master that the slave has. The slave promises to echo no other master's stamp for one
    lease from now. 0: it has no stamp, or is still bound by its promise to another master."""


class LeaseGrant(WireMessage, tag=141, frozen=True):
    """From the master: until this lease ends it gives the slave's partitions to no other member, unless the slave hands
    them over."""

    stamp: Millis
    """The time of the master's clock now."""
    clock: Millis
    """The `clock` of the slave's latest request: the lease begins then, by the slave's clock."""
    granted_ms: Millis
    """The length of the lease; 0: none is granted."""


class LifeProbe(WireMessage, tag=26, frozen=True):
    """The sender suspects the receiver, and sends it no heartbeats. An answer shows that the link works both ways."""

    view_version: int
    view_maker: MemberId


class LifeAnswer(WireMessage, tag=27, frozen=True):
    """The sender got the probe. This does not say whether it suspects the receiver, too."""


class ViewIsStable(WireMessage, tag=35, frozen=True):
    """From the master: all voters have installed this view. Its heartbeats repeat it (`is_stable`)."""

    version: int
    maker: MemberId


class ReachProbe(WireMessage, tag=28, frozen=True):
    """From a joiner whose link to the receiver was broken before. An answer shows that the link works both ways."""

    request_id: int


class ReachAnswer(WireMessage, tag=29, frozen=True):
    """The sender got the probe."""

    request_id: int


class PauseCheck(WireMessage, tag=120, frozen=True):
    """The sender was paused, and asks whether it is still in the receiver's view. A master asks whether the receiver
    still follows it."""

    number: int
    """The number of the question, which the answer carries: so an answer to an earlier question is recognized."""


class PauseCheckAnswer(WireMessage, tag=121, frozen=True):
    """Yes. A member that has gone on without the asker sends no answer."""

    number: int
    view_version: int
    view_maker: MemberId
    table_version: int
    """The version of the answering master's partition table; -1: the sender is not the master."""


class Complaint(WireMessage, tag=22, frozen=True):
    """From a slave to its master: the complainee sends it heartbeats, but is not in its view."""

    view_version: int
    view_maker: MemberId
    """With `view_version`, the sender's view."""
    complainee: MemberId
    complainee_version: int
    complainee_maker: MemberId
    """With `complainee_version`, the view that the complainee's heartbeat named."""


class SuspicionReport(WireMessage, tag=23, frozen=True):
    """In large clusters: the sender suspects a member that the receiver may not watch. The receiver should ask the
    suspect itself whether it is alive."""

    suspect: MemberId
    reason: str


class MergeProbe(WireMessage, tag=24, frozen=True):
    """From a master to addresses of former members: is there another side, and which side joins the other?

    A receiver that is not a master forwards it to its master.
    """

    cluster: str
    protocol: int
    """The oldest version of the protocol that all members of the asking side speak."""
    partition_count: int
    """How many partitions the asking side has; of release 8 how many its master was configured with."""
    view: MembersView
    """The view of the asking side. A member that forwards the probe does not change it."""
    has_data: bool
    """Whether the asking side has data."""
    about_version: int = 0
    about_maker: str = ""
    """With `about_version`, the receiver's view that this answers; empty: this answers none, so it decides nothing."""
    question: int = 0
    """The number of this question, which the answer repeats in `answers`."""
    answers: int = 0
    """The number of the receiver's question that this answers; 0: none."""
    newest: int = 0
    """The newest version that all members of the asking side speak; 0: `protocol` alone."""
    founders: tuple[MemberId, ...] = ()
    """Who founded the asking side's cluster, and those that have merged into it; empty: not told."""
    stored_root: MemberId = MemberId("")
    """Who founded the cluster of the data that the asking master has read from its folder, and does not serve; empty: there is none."""


class MergeOrder(WireMessage, tag=25, frozen=True):
    """From a master to its members: this side joins the other side of the cluster."""

    into: MembersView
    """The view of the other side."""
