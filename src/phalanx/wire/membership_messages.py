"""Messages about membership, and the handshake on every connection (docs/protocol/membership.md)."""

from __future__ import annotations

from phalanx.common.former_incarnation import Former
from phalanx.common.ids import Address, MemberId, Millis
from phalanx.common.quorum import Footing, Memory
from phalanx.common.traits import Traits
from phalanx.common.view import MembersView
from phalanx.wire.message import WireMessage

# --- handshake: the first frame each way on every connection --------------------------------------------------------


class Hello(WireMessage, tag=1, frozen=True):
    """From the connecting side: its identity, and the member that it means to reach."""

    protocol: int
    cluster: str
    sender: str
    """A member's identity, or the random name of a client; a later connection of a sender replaces an earlier one."""
    receiver: str
    """The member's identity, or only its address where the incarnation is not known yet."""
    nonce: bytes = b""
    """Random bytes for this connection from a side that has the cluster's secret; empty: it has none."""
    reached: str = ""
    """The numeric address that the connecting socket is connected to: what a name in `receiver` led to."""


class Welcome(WireMessage, tag=2, frozen=True):
    """From the accepting side: its identity."""

    member: MemberId
    proof: bytes = b""
    """Proof that the accepting side has the cluster's secret, too."""


class Refused(WireMessage, tag=3, frozen=True):
    """From the accepting side: it refuses the connection, says why, and closes it."""

    reason: str
    proof: bytes = b""
    """That the accepting side has the cluster's secret, and says this; empty: there is none, or the connecting side has not
    shown it."""


class Challenge(WireMessage, tag=4, frozen=True):
    """The accepting side has the cluster's secret, and goes on only with who has it as well."""

    member: MemberId
    nonce: bytes


class Proof(WireMessage, tag=5, frozen=True):
    """The connecting side has the cluster's secret: proved over both nonces and who wants to talk to whom."""

    proof: bytes


# --- membership ---------------------------------------------------------------------------------------------------


class JoinRequest(WireMessage, tag=10, frozen=True):
    """Ask to be admitted. Everything on which members must agree comes along."""

    request_id: int
    member: MemberId
    cluster: str
    protocol: int
    partition_count: int
    traits: Traits = Traits()
    reaches: tuple[MemberId, ...] = ()
    """The members that the joiner was told to reach first and that have just answered it."""
    lease_ms: Millis = 0
    memory: Memory | None = None
    """What the joiner's process knows of views, if it was a member before."""
    known: tuple[Address, ...] = ()
    """Where else there may be members of this cluster, as far as the joiner knows: its seeds, and what it remembers."""


class JoinResponse(WireMessage, tag=11, frozen=True):
    """Admitted: the view that contains the joiner."""

    request_id: int
    view: MembersView
    has_started: bool = True
    """Whether the cluster has ever had as many members as it waits for before it starts."""
    clock: int = 0
    """As in `Heartbeat`."""
    footing: Footing | None = None
    """Of the view."""
    former: Former = ()
    """Where another side of the cluster may be: whoever joins later has to find it too."""
    age_ms: Millis = 0
    """For how long the cluster has existed at least."""


class JoinRedirect(WireMessage, tag=12, frozen=True):
    """Only the master admits; this is it."""

    request_id: int
    master: MemberId


class JoinRefused(WireMessage, tag=13, frozen=True):
    """Not admitted: permanently, or (`retry`) for now."""

    request_id: int
    retry: bool
    reason: str
    in_cluster: bool
    """Whether the refusing member is in a cluster to which the joiner may belong: then it must not form another."""
    come_back: bool = False
    """This incarnation was a member and has been removed: a new one of the same process may ask."""
    waits: bool = False
    """The joiner's broken links are the reason: it keeps asking until they work."""
    reach: tuple[MemberId, ...] = ()
    """The members that the joiner must first reach and hear from."""


class MembersUpdate(WireMessage, tag=14, frozen=True):
    """The master publishes a view, whole, so that a missed one is repaired by the next."""

    view: MembersView
    has_started: bool = True
    """As in `JoinResponse`."""
    footing: Footing | None = None
    """Of the view."""
    former: Former = ()
    """As in `JoinResponse`."""


class MembersAck(WireMessage, tag=15, frozen=True):
    """This version, or a newer one, is installed here."""

    version: int
    maker: str = ""
    """Whose view exactly; empty: not told."""


class Heartbeat(WireMessage, tag=16, frozen=True):
    """I am alive, and this is my view."""

    view_version: int
    view_maker: MemberId
    wants_answer: bool = False
    """Ask the receiver to answer: in large clusters it sends no heartbeats here by itself."""
    clock: int = 0
    """The sender's reading of the grid's clock; 0: not told."""
    suspects: tuple[MemberId, ...] = ()
    """To the master: all members that the sender cannot reach. To others: always empty (A.6-1)."""
    is_stable: bool = False
    """From the master: all voters of this view have it."""


class ExplicitSuspicion(WireMessage, tag=17, frozen=True):
    """Our views have diverged: assume that I am dead and go your own way.

    `about_…` names the receiver's view that this was said of; a receiver that has moved on ignores it.
    """

    about_version: int
    about_maker: MemberId
    view: MembersView | None
    """The sender's; None: it has joined no cluster."""
    come_back: bool = False
    """The sender, the receiver's master, has removed it for its links to others, and nothing else: it is to ask again for
    admission, and not to go its own way."""


class MastershipClaim(WireMessage, tag=18, frozen=True):
    """Everybody older than me is suspected: I continue as the master. Do you agree?"""

    claim_id: int


class ClaimAnswer(WireMessage, tag=19, frozen=True):
    """The view of the member that was asked, and whether it agrees yet."""

    claim_id: int
    accepted: bool
    view: MembersView | None
    """None: not told. A refusal that is to be repeated carries no list: in large clusters there are many."""
    is_joining: bool = False
    """The member was admitted but does not know it yet; it will ask to join again, and is not to be waited for."""
    memory: Memory | None = None
    """If it agrees: what it knows of views."""
    bound_ms: Millis = 0
    """If it agrees: for how long it has promised to follow only its former master."""


class LeaveRequest(WireMessage, tag=20, frozen=True):
    """I want to leave: give others my replicas first, then publish a view without me."""


class LiteRequest(WireMessage, tag=39, frozen=True):
    """I want to hold no data any more: give others my replicas first. Or, if not lite: I want to hold my share."""

    lite: bool


class MasterConfirmation(WireMessage, tag=21, frozen=True):
    """From a slave to its master: I still follow you, and this is what I have of yours."""

    view_version: int
    view_maker: MemberId
    table_version: int
    """-1: none that the receiver has confirmed as the master."""
    wants_answer: bool = False
    """As in `Heartbeat`."""
    clock: int = 0
    """As in `Heartbeat`."""


class LeaseRequest(WireMessage, tag=140, frozen=True):
    """From a slave to its master, with each confirmation: extend my lease to acknowledge writes."""

    view_version: int
    view_maker: MemberId
    clock: Millis
    """What the slave's clock shows now."""
    echo: Millis
    """The latest stamp of this master that the slave has; it echoes no other master's for a lease from now. 0: it has none,
    or is still bound by its promise to another."""


class LeaseGrant(WireMessage, tag=141, frozen=True):
    """From the master: until this lease ends I give your partitions to no other member, unless you hand them over."""

    stamp: Millis
    """What the master's clock shows now."""
    clock: Millis
    """As in the latest request: the lease runs from there, by the slave's clock."""
    granted_ms: Millis


class LifeProbe(WireMessage, tag=26, frozen=True):
    """I suspect you, so you get no heartbeats of mine; answer, and I know that the way there and back is open."""

    view_version: int
    view_maker: MemberId


class LifeAnswer(WireMessage, tag=27, frozen=True):
    """I got your probe. Whether I suspect you is another matter."""


class ViewIsStable(WireMessage, tag=35, frozen=True):
    """All voters of this view have it, says its master, at once; its heartbeats say so again."""

    version: int
    maker: MemberId


class ReachProbe(WireMessage, tag=28, frozen=True):
    """I want to join, and our link was cut before: answer, and I know that the way there and back is open."""

    request_id: int


class ReachAnswer(WireMessage, tag=29, frozen=True):
    """I got your probe."""

    request_id: int


class PauseCheck(WireMessage, tag=120, frozen=True):
    """I was paused: am I still in your view? From a master: do you still follow me?"""

    number: int
    """The number of the sender's question: no earlier answer can carry it."""


class PauseCheckAnswer(WireMessage, tag=121, frozen=True):
    """Yes. A member that has gone on without the asker does not answer."""

    number: int
    view_version: int
    view_maker: MemberId
    table_version: int
    """Of the answering master's partition table; -1: it is not the master."""


class Complaint(WireMessage, tag=22, frozen=True):
    """From a slave to its master: this member sends me heartbeats, and is not in my list."""

    view_version: int
    view_maker: MemberId
    """The sender's view."""
    complainee: MemberId
    complainee_version: int
    complainee_maker: MemberId
    """The view that the complainee's heartbeat named."""


class SuspicionReport(WireMessage, tag=23, frozen=True):
    """Large clusters: I suspect a member that you may not watch. Ask it yourself whether it lives."""

    suspect: MemberId
    reason: str


class MergeProbe(WireMessage, tag=24, frozen=True):
    """From a master to addresses of former members: is there another side, and which of us joins the other?

    A member that is no master passes it on to its own.
    """

    cluster: str
    protocol: int
    partition_count: int
    view: MembersView
    """The sender's side; its master made it or sent this."""
    has_data: bool
    about_version: int = 0
    about_maker: str = ""
    """The receiver's view that this answers; empty: it answers none, and decides nothing."""
    question: int = 0
    """The sender's, for the answer."""
    answers: int = 0
    """Which question of the receiver this answers; 0: none."""


class MergeOrder(WireMessage, tag=25, frozen=True):
    """From a master to its members: our side joins the other one, whose view this is."""

    into: MembersView
