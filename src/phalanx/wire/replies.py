"""Replies of members to `requests`."""

from __future__ import annotations

import msgspec

from phalanx.common.errors import ErrorCode
from phalanx.common.ids import Address, MemberId, Millis
from phalanx.common.losses import LossBook
from phalanx.common.migration import Migration
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.wire.message import WireMessage


class ValueReply(WireMessage, tag=90, frozen=True):
    id: int
    value: bytes | None


class ValuesReply(WireMessage, tag=91, frozen=True):
    """Values of the first keys asked for, None where there is none; fewer than asked where a reply would be too big."""

    id: int
    values: list[bytes | None]


class CountReply(WireMessage, tag=92, frozen=True):
    id: int
    count: int


class FlagReply(WireMessage, tag=93, frozen=True):
    id: int
    flag: bool


class DoneReply(WireMessage, tag=94, frozen=True):
    id: int


class PageReply(WireMessage, tag=95, frozen=True):
    """`more`: ask again, behind the last key of this page, or behind `after_key`."""

    id: int
    keys: list[bytes]
    values: list[bytes]
    more: bool
    after_key: bytes = b""
    """If there is more: ask again, behind this key instead. It may be none of those above; empty: it is the last of them."""


class PackedReply(WireMessage, tag=151, frozen=True):
    """Entries as four byte strings, so that neither side needs an object for each entry."""

    id: int
    key_data: bytes
    """All keys, one behind the other."""
    key_sizes: bytes
    """Four bytes for each key: its length, little-endian."""
    value_data: bytes
    """All values, one behind the other, each behind the eight bytes of its stamp."""
    value_sizes: bytes
    """Four bytes for each value: its length with the stamp, little-endian."""
    more: bool
    after_key: bytes = b""
    """If there is more: ask again, behind this key. It may be none of those above."""
    ttls: bytes = b""
    """If they were asked for, eight bytes for each entry: how many milliseconds it still lives, little-endian; 0: for
    ever. Empty where all live for ever.
    """


class JournalReply(WireMessage, tag=155, frozen=True):
    """The readable events of a journal: those that every member has which must confirm a write.

    `lineage` is 0 where the map has no journal here.
    """

    id: int
    lineage: int
    """Of the events of this reply, all of them; of a reply without any: of the event before `end`."""
    oldest: int
    """The number of the oldest event that is kept and may be read; none is: as `end`."""
    end: int
    """Behind that of the newest event that may be read; -1: the backups of a new owner have yet to say what they have."""
    known_to: int
    """Up to which number the lineage that was asked for is the same here; -1: it is unknown."""
    sequence: int
    """The number of the first event of this reply."""
    kinds: list[int]
    """As in `grid.journal`."""
    keys: list[bytes]
    values: list[bytes | None]
    """Without their stamps; None: the entry is gone."""
    olds: list[bytes | None]
    stamps: list[Millis]
    """Of the writes, by the grid's clock."""


class TableReply(WireMessage, tag=96, frozen=True):
    id: int
    table: PartitionTable
    view: MembersView
    sought: tuple[Address, ...] = ()
    """Where this member's side looks for others of its cluster: former members, and seeds that are not in the list."""
    founders: tuple[MemberId, ...] = ()
    """Who founded the cluster, then who founded those that have come to it since. Empty: not told."""
    age_ms: Millis = 0
    """For how long the cluster has existed at least, where its founders are told."""


class MembersReply(WireMessage, tag=97, frozen=True):
    id: int
    view: MembersView
    suspected: list[MemberId]


class NamesReply(WireMessage, tag=98, frozen=True):
    id: int
    names: list[str]


class ReplicasReply(WireMessage, tag=99, frozen=True):
    id: int
    owned: int
    backups: int
    entries: int
    bytes: int
    """Of serialised keys and values."""
    unconfirmed: int
    """Partitions that wait for a backup to confirm a write, or for a copy to end."""
    backup_count: int = 0
    """How many backups of each partition there are to be."""
    kept_entries: int = 0
    """Of a cluster that this process has left, and not merged into this one yet."""
    hidden_entries: int = 0
    """Staged, or kept as they were, by jobs; none of `entries`."""


class HistoryReply(WireMessage, tag=101, frozen=True):
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


class SafetyReply(WireMessage, tag=102, frozen=True):
    """Of partitions, as the installed table and the replicas here have them."""

    id: int
    view: MembersView
    suspected: list[MemberId]
    table_version: int
    owned: int
    backups: int
    only_here: int
    """Held by no other member of the view."""
    lacking: int
    """Held here, and by fewer members than are configured and there."""
    unconfirmed: int
    """Owned here, with a backup that may not have everything: it has not told, gets a copy, or confirms nothing."""
    migrating: int
    """In a migration in which this member sends or receives, as far as it knows itself."""
    wanted_replicas: int
    """How many members should hold each partition, by what is configured and who is there."""
    configured_replicas: int
    kept: int = 0
    """Replicas of a cluster that this process has left, which are not merged into this one yet."""
    kept_entries: int = 0


class MigrationUnderWay(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A migration that the master has ordered and whose outcome it does not know."""

    partition: int
    migration: Migration[MemberId]
    owner: MemberId
    """Who sends the data."""
    phase: str
    """`ordered`: the destination is brought up to date; `committing`: it is told to commit."""
    age_ms: Millis


class LeavingMember(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A member that wants to leave."""

    member: MemberId
    replicas: int
    """How many others must take over first."""


class KeptByMember(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A member that keeps replicas of a side that gave up its cluster, as it has told the master."""

    member: MemberId
    replicas: int
    entries: int


class MigrationsReply(WireMessage, tag=103, frozen=True):
    """All but the first two fields only from the master."""

    id: int
    master: MemberId | None
    is_master: bool
    searching_for: list[MemberId]
    """Members whose tables the new master waits for; until then it decides nothing."""
    at_rest: bool
    """Nothing is searched, planned, moved or merged, nobody leaves, and every member has the table."""
    planned: int
    """Partitions that the present rebalancing is about."""
    arrived: int
    """Those of them that are where they should be."""
    remaining: int
    done: int
    """Migrations committed for it; a partition may take several."""
    lacking: int
    """Partitions that miss replicas on members that stay."""
    without_table: list[MemberId]
    """Members that have not said that they have the present table."""
    leaving: list[LeavingMember]
    under_way: list[MigrationUnderWay]
    kept: tuple[KeptByMember, ...] = ()
    """Members that have yet to merge what they keep of a side that gave up its cluster."""
    copied_entries: int = 0
    """Entries copied by the committed migrations of the present rebalancing."""
    copied_bytes: int = 0
    """The size of their keys and values."""
    took_ms: int = 0
    """For how long the present rebalancing has gone on, or the last one went on."""
    left_ms: int | None = None
    """For how much longer, at the pace of the partitions so far; None: no partition has arrived yet."""


class LossesReply(WireMessage, tag=172, frozen=True):
    """What was lost and is not acknowledged."""

    id: int
    losses: LossBook
    view: MembersView
    now_ms: int
    """Milliseconds since 1970 by the grid's clock."""


class ErrorReply(WireMessage, tag=100, frozen=True):
    id: int
    code: ErrorCode
    text: str
