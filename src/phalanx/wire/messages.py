"""Every message between processes, as frozen structs; the closed union `Message` is what may arrive.

Members send each other membership, table, replication and copy messages. Callers (clients, and members on behalf of
the program that embeds them) send requests, each with an id, and get exactly one reply with that id. Integer tags are
the wire contract: a number is never reused.
"""

from __future__ import annotations

import msgspec

from phalanx.common.errors import ErrorCode
from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView

PROTOCOL_VERSION = 2


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """No message refers back to itself, so none needs the cycle collector."""


# --- handshake: the first frame each way on every connection --------------------------------------------------------


class Hello(_Message, tag=1, frozen=True):
    """The connecting side: who it is, and whom it means to reach."""

    protocol: int
    cluster: str
    sender: str
    """A member's identity, or the name that a client drew for itself; a later connection replaces an earlier one."""
    receiver: str
    """The member's identity, or only its address where the incarnation is not known yet."""


class Welcome(_Message, tag=2, frozen=True):
    """The accepting side: who it is."""

    member: MemberId


class Refused(_Message, tag=3, frozen=True):
    """The accepting side will not talk, and says why. It closes the connection after this."""

    reason: str


# --- membership (references 001 and 003) ----------------------------------------------------------------------------


class JoinRequest(_Message, tag=10, frozen=True):
    """Ask to be admitted. Everything on which members must agree comes along."""

    request_id: int
    member: MemberId
    cluster: str
    protocol: int
    partition_count: int


class JoinResponse(_Message, tag=11, frozen=True):
    """Admitted: the view that contains the joiner."""

    request_id: int
    view: MembersView
    has_started: bool = True
    """Whether the cluster has once had the members that it was to wait for."""


class JoinRedirect(_Message, tag=12, frozen=True):
    """Only the master admits; this is it."""

    request_id: int
    master: MemberId


class JoinRefused(_Message, tag=13, frozen=True):
    """Not admitted: for ever, or `retry` a little later."""

    request_id: int
    retry: bool
    reason: str
    in_cluster: bool
    """Whether the one that refuses is in a cluster: then the asker must not form another."""
    come_back: bool = False
    """This incarnation was a member and has been removed: a new one of the same process may ask."""


class MembersUpdate(_Message, tag=14, frozen=True):
    """The master publishes a view, whole, so that a missed one is repaired by the next."""

    view: MembersView
    has_started: bool = True
    """As in `JoinResponse`."""


class MembersAck(_Message, tag=15, frozen=True):
    """This version, or a newer one, is installed here."""

    version: int


class Heartbeat(_Message, tag=16, frozen=True):
    """I am alive, and this is the list that I have."""

    view_version: int
    view_maker: MemberId
    wants_answer: bool = False
    """The receiver sends no heartbeats here by itself (large clusters), and is asked whether it lives."""


class ExplicitSuspicion(_Message, tag=17, frozen=True):
    """Our views have diverged: assume that I am dead and go your own way.

    `about_…` names the receiver's view that this was said of; a receiver that has moved on ignores it.
    """

    about_version: int
    about_maker: MemberId
    view: MembersView | None
    """The sender's; None: it has joined no cluster."""


class MastershipClaim(_Message, tag=18, frozen=True):
    """Everybody older than me is suspected: I continue as the master. Do you agree?"""

    claim_id: int


class ClaimAnswer(_Message, tag=19, frozen=True):
    """The list of the member that was asked, and whether it agrees yet."""

    claim_id: int
    accepted: bool
    view: MembersView | None
    """None: not told. A refusal that is to be repeated carries no list: in large clusters there are many."""
    is_joining: bool = False
    """The member was admitted but does not know it yet; it will ask to join again, and is not to be waited for."""


class LeaveRequest(_Message, tag=20, frozen=True):
    """I want to leave: give others my replicas first, then publish a view without me."""


class MasterConfirmation(_Message, tag=21, frozen=True):
    """From a slave to its master: I still follow you, and this is what I have of yours."""

    view_version: int
    view_maker: MemberId
    table_version: int
    """-1: none that the receiver has confirmed as the master."""
    wants_answer: bool = False
    """As in `Heartbeat`."""


class LifeProbe(_Message, tag=26, frozen=True):
    """I suspect you, so you get no heartbeats of mine; answer, and I know that the way there and back is open."""

    view_version: int
    view_maker: MemberId


class LifeAnswer(_Message, tag=27, frozen=True):
    """I got your probe. Whether I suspect you is another matter."""


class Complaint(_Message, tag=22, frozen=True):
    """From a slave to its master: this member sends me heartbeats, and is not in my list."""

    view_version: int
    view_maker: MemberId
    """The sender's view."""
    complainee: MemberId
    complainee_version: int
    complainee_maker: MemberId
    """The view that the complainee's heartbeat named."""


class SuspicionReport(_Message, tag=23, frozen=True):
    """Large clusters: I suspect a member that you may not watch. Ask it yourself whether it lives."""

    suspect: MemberId
    reason: str


class MergeProbe(_Message, tag=24, frozen=True):
    """From a master to where members were that it knows of: is there another side, and which of us joins the other?

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


class MergeOrder(_Message, tag=25, frozen=True):
    """From a master to its members: our side joins the other one, whose view this is."""

    into: MembersView


# --- partition table (reference 004) --------------------------------------------------------------------------------


class TableUpdate(_Message, tag=30, frozen=True):
    """The master publishes its partition table."""

    table: PartitionTable


class FetchTable(_Message, tag=31, frozen=True):
    """A new master looks for the most recent table before it publishes anything."""

    search_id: int


class FetchedTable(_Message, tag=32, frozen=True):
    """The table that this member has."""

    search_id: int
    table: PartitionTable


class TableRequest(_Message, tag=33, frozen=True):
    """Somebody wants to use the data: assign the partitions if that has not happened yet."""


class TableAck(_Message, tag=34, frozen=True):
    """This version of the table is installed here, and confirmed by the receiver as the master."""

    version: int


# --- replication and copies -----------------------------------------------------------------------------------------


class ReplicatePut(_Message, tag=40, frozen=True):
    """The owner's `seq`-th write to a partition in its `epoch` (the partition's version when its ownership began)."""

    partition: int
    epoch: int
    seq: int
    map: str
    keys: list[bytes]
    values: list[bytes]
    ttl_ms: Millis
    """Time that the entries live from now on; 0: for ever."""


class ReplicateRemove(_Message, tag=41, frozen=True):
    """As `ReplicatePut`: these keys are gone."""

    partition: int
    epoch: int
    seq: int
    map: str
    keys: list[bytes]


class ReplicateClear(_Message, tag=42, frozen=True):
    """As `ReplicatePut`: the map has no entries left in this partition."""

    partition: int
    epoch: int
    seq: int
    map: str


class ReplicateAck(_Message, tag=43, frozen=True):
    """All writes of the epoch up to and including `seq` are applied here."""

    partition: int
    epoch: int
    seq: int


class Probe(_Message, tag=44, frozen=True):
    """A new owner asks a backup whether it holds exactly what the owner began with."""

    partition: int
    epoch: int
    base_epoch: int
    base_seq: int
    base_ruler: str
    """Whose the epoch was that the owner itself had followed; empty: nobody's."""


class ProbeAnswer(_Message, tag=45, frozen=True):
    """In sync up to `seq` of the epoch; -1: out of sync, needs a copy."""

    partition: int
    epoch: int
    seq: int


class CopyOrder(_Message, tag=46, frozen=True):
    """The master tells the owner to copy a partition to a new backup."""

    partition: int
    base_version: int
    """The partition's version that the order is for. It is over as soon as the table shows a greater one."""
    destination: MemberId


class CopyReport(_Message, tag=47, frozen=True):
    """The owner tells the master: the destination holds everything (`done`), or this copy was given up."""

    partition: int
    base_version: int
    destination: MemberId
    done: bool


class CopyStart(_Message, tag=48, frozen=True):
    """What follows on this connection is a copy of a partition as of `seq`, mixed with the writes after it."""

    partition: int
    base_version: int
    copy_id: int
    epoch: int
    seq: int


class CopyChunk(_Message, tag=49, frozen=True):
    """Some entries of one map. `ttls` is empty when none of them expires."""

    partition: int
    copy_id: int
    index: int
    map: str
    keys: list[bytes]
    values: list[bytes]
    ttls: list[Millis]
    last: bool


class CopyAck(_Message, tag=50, frozen=True):
    """The chunk is applied: send the next one."""

    partition: int
    copy_id: int
    index: int


class ReplicateAcks(_Message, tag=51, frozen=True):
    """What several writes that arrived together are answered with."""

    acks: list[ReplicateAck]


# --- requests of callers --------------------------------------------------------------------------------------------


class Get(_Message, tag=60, frozen=True):
    id: int
    map: str
    key: bytes


class Put(_Message, tag=61, frozen=True):
    id: int
    map: str
    key: bytes
    value: bytes
    ttl_ms: Millis


class PutIfAbsent(_Message, tag=62, frozen=True):
    """Answered with the value that was there (nothing changed), or None (stored)."""

    id: int
    map: str
    key: bytes
    value: bytes
    ttl_ms: Millis


class Replace(_Message, tag=63, frozen=True):
    """Store only if the key has a value, and, where `expected` is given, exactly that one. Answered with a flag."""

    id: int
    map: str
    key: bytes
    expected: bytes | None
    value: bytes
    ttl_ms: Millis


class Remove(_Message, tag=64, frozen=True):
    """Answered with the value that was there, or None."""

    id: int
    map: str
    key: bytes


class Contains(_Message, tag=65, frozen=True):
    id: int
    map: str
    key: bytes


class GetAll(_Message, tag=66, frozen=True):
    """All keys must be owned by the receiver. The answer holds values for the first keys, as many as fit a reply."""

    id: int
    map: str
    keys: list[bytes]


class PutAll(_Message, tag=67, frozen=True):
    """All keys must be owned by the receiver; otherwise nothing is stored."""

    id: int
    map: str
    keys: list[bytes]
    values: list[bytes]
    ttl_ms: Millis


class SizeOf(_Message, tag=68, frozen=True):
    id: int
    map: str
    partitions: list[int]


class ClearPartitions(_Message, tag=69, frozen=True):
    id: int
    map: str
    partitions: list[int]


class ScanPartition(_Message, tag=70, frozen=True):
    """A page of entries in scan order (hash, then key bytes) behind `after_key`; empty: from the beginning."""

    id: int
    map: str
    partition: int
    after_key: bytes
    max_bytes: int


class GetTable(_Message, tag=71, frozen=True):
    """The member's partition table. `assign`: let the cluster assign its partitions if that has not happened yet."""

    id: int
    assign: bool


class GetMembers(_Message, tag=72, frozen=True):
    """The member's view; changes nothing."""

    id: int


class GetMapNames(_Message, tag=73, frozen=True):
    """Names of the maps that have entries on this member."""

    id: int


class GetReplicas(_Message, tag=74, frozen=True):
    """What this member holds, for people: entries and bytes of the replicas, and what is not confirmed yet."""

    id: int


class GetHistory(_Message, tag=75, frozen=True):
    """The decisions that this member remembers; answered also by one that is in no cluster."""

    id: int


# --- replies --------------------------------------------------------------------------------------------------------


class ValueReply(_Message, tag=90, frozen=True):
    id: int
    value: bytes | None


class ValuesReply(_Message, tag=91, frozen=True):
    """Values of the first keys asked for, None where there is none; fewer than asked where a reply would be too big."""

    id: int
    values: list[bytes | None]


class CountReply(_Message, tag=92, frozen=True):
    id: int
    count: int


class FlagReply(_Message, tag=93, frozen=True):
    id: int
    flag: bool


class DoneReply(_Message, tag=94, frozen=True):
    id: int


class PageReply(_Message, tag=95, frozen=True):
    """`more`: ask again, behind the last key of this page."""

    id: int
    keys: list[bytes]
    values: list[bytes]
    more: bool


class TableReply(_Message, tag=96, frozen=True):
    id: int
    table: PartitionTable
    view: MembersView


class MembersReply(_Message, tag=97, frozen=True):
    id: int
    view: MembersView
    suspected: list[MemberId]


class NamesReply(_Message, tag=98, frozen=True):
    id: int
    names: list[str]


class ReplicasReply(_Message, tag=99, frozen=True):
    id: int
    owned: int
    backups: int
    entries: int
    bytes: int
    """Of serialised keys and values."""
    unconfirmed: int
    """Partitions that wait for a backup to confirm a write, or for a copy to end."""
    backup_count: int = 0
    """How many backups of each partition this member is configured to keep."""


class HistoryReply(_Message, tag=101, frozen=True):
    """Decisions of this incarnation, oldest first."""

    id: int
    view: MembersView | None
    suspected: list[MemberId]
    ages: list[Millis]
    """How long ago each was made."""
    events: list[bytes]
    """Each as JSON, so that a caller can read also kinds of events that it does not know."""
    forgotten: int
    """Older ones that are no more remembered."""


class ErrorReply(_Message, tag=100, frozen=True):
    id: int
    code: ErrorCode
    text: str


Handshake = Hello | Welcome | Refused
MembershipMessage = (
    JoinRequest | JoinResponse | JoinRedirect | JoinRefused | MembersUpdate | MembersAck | Heartbeat
    | MasterConfirmation | LifeProbe | LifeAnswer | ExplicitSuspicion | Complaint | SuspicionReport | MastershipClaim | ClaimAnswer
    | LeaveRequest | MergeProbe | MergeOrder
)  # fmt: skip
TableMessage = TableUpdate | FetchTable | FetchedTable | TableRequest | TableAck
Replicate = ReplicatePut | ReplicateRemove | ReplicateClear
ReplicationMessage = (
    Replicate | ReplicateAck | ReplicateAcks | Probe | ProbeAnswer | CopyOrder | CopyReport | CopyStart | CopyChunk
    | CopyAck
)  # fmt: skip
KeyRead = Get | Contains
KeyWrite = Put | PutIfAbsent | Replace | Remove
KeyRequest = KeyRead | KeyWrite
BulkRequest = GetAll | PutAll | SizeOf | ClearPartitions | ScanPartition
Inquiry = GetTable | GetMembers | GetMapNames | GetReplicas | GetHistory
Request = KeyRequest | BulkRequest | Inquiry
Reply = (
    ValueReply | ValuesReply | CountReply | FlagReply | DoneReply | PageReply | TableReply | MembersReply
    | NamesReply | ReplicasReply | HistoryReply | ErrorReply
)  # fmt: skip
Message = MembershipMessage | TableMessage | ReplicationMessage | Request | Reply
"""What may arrive after the handshake."""

ONCE_ONLY = (PutIfAbsent, Replace, Remove)
"""Writes whose answer depends on what was there: sending one twice could answer wrongly."""
WRITES = (Put, PutIfAbsent, Replace, Remove, PutAll, ClearPartitions)
"""Requests that change something."""
