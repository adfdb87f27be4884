"""The grid at one member: routes requests and replication messages to the partitions that this member holds.

A request is served by the owner alone, by the table that is installed here; whoever asks the wrong member is told so,
and nothing is done. What a request does stands in `operations`, how writes reach backups in `replication` and
`following`, how partitions are copied in `copying`.
"""

from __future__ import annotations

from collections.abc import Collection

from phalanx.common.config import NodeConfig
from phalanx.common.errors import ErrorCode
from phalanx.common.ids import MemberId, Millis, Target
from phalanx.common.invariant import invariant
from phalanx.common.table import PartitionTable
from phalanx.grid.following import Followed
from phalanx.grid.operations import remove_keys
from phalanx.grid.replication import OwnedPartition, PendingWrite
from phalanx.grid.store import Replica
from phalanx.wire.effects import Outbox
from phalanx.wire.messages import (
    CopyAck,
    CopyOrder,
    CopyReport,
    ErrorReply,
    Probe,
    ProbeAnswer,
    Replicate,
    ReplicateAck,
    ReplicateAcks,
    Reply,
)

EXPIRE_AT_MOST = 200
"""Entries that one partition drops in one turn because their time is over."""
EXPIRY_PAUSE_MS = 100
"""Between two looks for entries whose time is over; reads never see them in between."""


class GridService:
    """The partitions that this member owns, and the replicas that follow other owners."""

    def __init__(self, this: MemberId, config: NodeConfig, table: PartitionTable, outbox: Outbox) -> None:
        self.this = this
        self.config = config
        self.out = outbox
        self._max_key, self._max_value = config.max_key_bytes, config.max_value_bytes
        self.table = table
        self.owned: list[OwnedPartition | None] = [None] * config.partition_count
        self.followed = Followed(this, self.owns, outbox)
        self.unsettled: dict[int, OwnedPartition] = {}
        """Owned partitions that wait for a replica: for an acknowledgement, a probe or a copy."""
        self._confirmed_by: MemberId | None = None
        self._copies_made = 0
        self._expiring: dict[int, OwnedPartition] = {}
        """Owned partitions that may hold entries which expire."""
        self._look_at = 0
        """When unsettled partitions and expiring entries are looked at next."""

    def __repr__(self) -> str:
        owned = sum(1 for owned in self.owned if owned is not None)
        return f"GridService(owned={owned}, followed={len(self.followed.replicas)}, unsettled={list(self.unsettled)})"

    def owns(self, partition: int) -> bool:
        return self.owned[partition] is not None

    def validate(self) -> None:
        """What must hold between any two inputs."""
        for partition, owned in enumerate(self.owned):
            if owned is not None:
                invariant(self.table.owner(partition) == self.this, "an owner owns by the table", partition=partition)
                invariant(partition not in self.followed.replicas, "an owner follows nobody", partition=partition)
                backups = set(self.table.replicas(partition)[1:])
                counting = {member for member, stream in owned.streams.items() if stream.counts}
                invariant(backups <= counting, "writes wait for every backup of the table", partition=partition)

    # --- requests --------------------------------------------------------------------------------------------------

    def refuse(self, caller: Target, request_id: int, partition: int) -> None:
        """Tell the caller of a request for a partition that this member does not own."""
        if self.table.version == 0 or self.table.owner(partition) in (None, self.this):
            self.fail(caller, request_id, ErrorCode.NOT_READY, "the partition has no owner yet")
        else:
            owner = self.table.owner(partition)
            self.fail(caller, request_id, ErrorCode.NOT_OWNER, f"partition {partition} is owned by {owner}")

    def fail(self, caller: Target, request_id: int, code: ErrorCode, text: str) -> None:
        self.out.send(caller, ErrorReply(request_id, code, text))

    def write(self, owned: OwnedPartition, message: Replicate, caller: Target, reply: Reply) -> None:
        """Confirm a write that is applied here and numbered: at once, or when the backups have it."""
        if not owned.streams:
            owned.append(message, None)
            self.out.send(caller, reply)
        elif owned.append(message, PendingWrite(caller, reply, 1)):
            self.unsettled[owned.number] = owned
        else:
            self.unsettled[owned.number] = owned
            self.out.send(caller, reply)

    def put_alone(self, partition: int, name: str, key: bytes, value: bytes) -> bool:
        """The embedding program's short way: store a value at once, if no other member has to hear of it.

        False, and nothing done, where this member does not own the partition, a backup must confirm, or a limit is hit.
        """
        owned = self.owned[partition]
        if owned is None or owned.streams or len(key) > self._max_key or len(value) > self._max_value:
            return False
        owned.put_unshared(name, key, value)
        return True

    def note_expiry(self, owned: OwnedPartition) -> None:
        """An entry with a time to live was stored."""
        self._expiring[owned.number] = owned

    # --- the table -------------------------------------------------------------------------------------------------

    def on_table(self, table: PartitionTable, confirmed_by: MemberId | None, now: Millis) -> None:
        """The master's table was installed, or another master confirmed the one that is installed."""
        reconfirmed = confirmed_by != self._confirmed_by
        self._confirmed_by = confirmed_by
        before, self.table = self.table, table
        same_members = before.members == table.members
        self.followed.follow_table(table, reconfirmed=reconfirmed)
        for partition, row in enumerate(table.rows):
            if same_members and not reconfirmed and before.versions[partition] == table.versions[partition]:
                continue
            owner = table.members[row[0]] if row else None
            owned = self.owned[partition]
            if owner == self.this:
                if owned is None:
                    owned = self._take_over(partition, table.versions[partition])
                backups = tuple(table.members[index] for index in row[1:])
                owned.follow_table(backups, table.versions[partition], reconfirmed, now)
                if not owned.is_settled:
                    self.unsettled[partition] = owned
            elif owned is not None:
                self._hand_over(owned, still_backup=self.this in table.replicas(partition))

    def _take_over(self, partition: int, epoch: int) -> OwnedPartition:
        """Become the owner: with the replica that is here, or with an empty one where nobody had any."""
        replica = self.followed.replicas.pop(partition, None) or Replica()
        self.followed.copies.pop(partition, None)
        replica.ordered_for = -1
        owned = OwnedPartition(self.this, partition, replica, epoch, self.out)
        self.owned[partition] = owned
        if any(store.expires_at for store in replica.maps.values()):
            self._expiring[partition] = owned
        return owned

    def _hand_over(self, owned: OwnedPartition, *, still_backup: bool) -> None:
        """Stop to be the owner. Whether writes that wait have reached the new owner is not known here."""
        self.owned[owned.number] = None
        self.unsettled.pop(owned.number, None)
        self._expiring.pop(owned.number, None)
        if still_backup:
            self.followed.replicas[owned.number] = owned.replica
        for write in owned.abandon():
            if write.partitions_left > 0:
                write.partitions_left = 0
                text = f"partition {owned.number} got another owner before the backups confirmed the write"
                self.fail(write.caller, write.reply.id, ErrorCode.OWNERSHIP_LOST, text)

    def on_view(self, members: Collection[MemberId]) -> None:
        """The view was installed."""
        for owned in self.owned:
            if owned is not None and owned.streams:
                owned.on_view(members)
                self._note_settled(owned)

    def end(self) -> None:
        """This incarnation is over: what it held is served by others."""
        for owned in self.owned:
            if owned is not None:
                self._hand_over(owned, still_backup=False)
        self.followed.replicas.clear()
        self.followed.copies.clear()

    # --- replication -----------------------------------------------------------------------------------------------

    def on_replicate_ack(self, sender: MemberId, message: ReplicateAck, now: Millis) -> None:
        owned = self.owned[message.partition]
        if owned is not None and owned.on_ack(sender, message, now):
            self._report(owned, sender, done=True)
        self._note_settled(owned)

    def on_replicate_acks(self, sender: MemberId, message: ReplicateAcks, now: Millis) -> None:
        for ack in message.acks:
            self.on_replicate_ack(sender, ack, now)

    def on_probe(self, sender: MemberId, message: Probe) -> None:
        self.followed.on_probe(sender, message)

    def on_probe_answer(self, sender: MemberId, message: ProbeAnswer, now: Millis) -> None:
        owned = self.owned[message.partition]
        chunk_bytes = self.config.copy_chunk_bytes
        if owned is not None and owned.on_probe_answer(sender, message, self._next_copy_id(), chunk_bytes, now):
            self._report(owned, sender, done=True)
        if owned is not None and not owned.is_settled:
            self.unsettled[owned.number] = owned
        self._note_settled(owned)

    def on_copy_order(self, sender: MemberId, message: CopyOrder, now: Millis) -> None:
        """Of this member's master. An order for another version of the partition is too old or too new: ignored."""
        owned = self.owned[message.partition]
        if owned is None or self.table.versions[message.partition] != message.base_version:
            return
        self.unsettled[owned.number] = owned
        chunk_bytes = self.config.copy_chunk_bytes
        if owned.copy_to(message.destination, message.base_version, self._next_copy_id(), chunk_bytes, now):
            self._report(owned, message.destination, done=True)

    def on_copy_ack(self, sender: MemberId, message: CopyAck, now: Millis) -> None:
        owned = self.owned[message.partition]
        if owned is not None:
            owned.on_copy_ack(sender, message, now)

    def on_link_lost(self, peer: MemberId, now: Millis, *, is_refused: bool = False) -> None:
        """Messages to or from the peer may be lost; `is_refused`: only those that waited for a connection to it."""
        if not is_refused:
            self.followed.on_link_lost(peer)
        for owned in list(self.unsettled.values()):
            if owned.on_link_lost(peer, now, is_refused=is_refused):
                self._report(owned, peer, done=False)
            self._note_settled(owned)

    def on_link_up(self, peer: MemberId, now: Millis) -> None:
        """A connection to the peer is open."""
        for owned in self.unsettled.values():
            owned.on_link_up(peer, now)

    def _report(self, owned: OwnedPartition, destination: MemberId, *, done: bool) -> None:
        """Tell the master how a copy that it ordered stands."""
        if self._confirmed_by is not None:
            version = self.table.versions[owned.number]
            self.out.send(self._confirmed_by, CopyReport(owned.number, version, destination, done))

    def _next_copy_id(self) -> int:
        self._copies_made += 1
        return self._copies_made

    def _note_settled(self, owned: OwnedPartition | None) -> None:
        if owned is not None and owned.is_settled:
            self.unsettled.pop(owned.number, None)

    # --- time ------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> Millis | None:
        return self._look_at if self.unsettled or self._expiring else None

    def on_time(self, now: Millis) -> None:
        """Repeat what was not acknowledged, restart copies that stand still, drop entries whose time is over."""
        if now < self._look_at:
            return
        self._look_at = now + EXPIRY_PAUSE_MS
        for owned in list(self.unsettled.values()):
            owned.ask_if_silent(now)
            for member in owned.stalled_copies(now):
                if owned.on_link_lost(member, now):
                    self._report(owned, member, done=False)
            self._note_settled(owned)
        for owned in list(self._expiring.values()):
            self._expire(owned, now)

    def _expire(self, owned: OwnedPartition, now: Millis) -> None:
        still_expiring = False
        for name, store in list(owned.replica.maps.items()):
            if keys := store.take_expired(now, EXPIRE_AT_MOST):
                remove_keys(self, owned, name, keys)
            still_expiring = still_expiring or bool(store.expires_at)
        if not still_expiring:
            self._expiring.pop(owned.number, None)
