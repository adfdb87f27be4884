"""Members, and every message between them, in the hands of a test: nothing moves unless the test says so.

    c = Cluster("ABC", partition_count=1)     # A is the seed; all three have joined, and all is quiet
    write = c.put("A", KEY, b"v")             # a client's request; its messages wait in queues
    c.deliver("A", "B")                       # the next message from A to B
    c.hold("B", "A"); c.settle()              # everything else, until nothing is left
    c.advance(10_000)                         # time passes, at every deadline of every member
    c.crash("A"); c.lose_link("B", "C"); c.cut("A", "B"); c.hang("C")

A link has one direction and keeps order, as the drivers' links do: it is opened by the first message, which ends in
LinkUp or LinkRefused; when it breaks, what was in it is gone and both ends get LinkLost. Each input is followed by the
member's own `validate` and by the checks of `_check` that span members.
"""

import functools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar
from unittest.mock import patch

import msgspec

from phalanx.codec.hashing import partition_of
from phalanx.common.clock import ClockStart, value_of
from phalanx.common.config import NodeConfig
from phalanx.common.ids import Address, ClientId, MemberId, Target, address_of, is_client, is_member, member_id
from phalanx.common.store import StoreStart
from phalanx.common.table import PartitionTable, Slots
from phalanx.common.versions import OLDEST_PROTOCOL_VERSION, this_release
from phalanx.common.view import MembersView
from phalanx.disk.replay import Replay
from phalanx.disk.restoring import restore
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.machine.effects import Answer, Finished, Record, Send
from phalanx.machine.inputs import (
    Call,
    Input,
    LeaveWanted,
    LinkLost,
    LinkRefused,
    LinkUp,
    Received,
    Started,
    Synced,
    TimePassed,
)
from phalanx.machine.local_context import LocalContext
from phalanx.machine.outbox import Outbox
from phalanx.membership.service import MembershipService
from phalanx.node.local_access import LocalAccess
from phalanx.node.node import Node
from phalanx.wire import messages as m
from phalanx.wire.disk_records import LogRecord

Kind = TypeVar("Kind", bound=m.Reply)

PORT = 5701
MAP = "m"
DESERTED = "connection refused"
TEXT = b"\xff\xff\xff\xf5"
"""The type id of a text: what a key or value begins with."""
CLIENT = ClientId("client/1")
NAMES_PARTITIONS = (m.SizeOf, m.ClearPartitions, m.ScanPartition)
REQUIRED_FIELDS: dict[Any, int] = {
    kind: sum(field.required for field in msgspec.structs.fields(kind)) for kind in NAMES_PARTITIONS
}


EXACT_TIMES: dict[str, Any] = {"failure_detector": "deadline", "migration_latency_target_ms": 0}
"""Tests of the protocol name the very millisecond of a suspicion, and let messages pass while no time does; what phi
learns, and how copies are paced, is tested by itself."""


def key_of(partition: int, partition_count: int, number: int = 0) -> bytes:
    """The `number`-th key of a fixed series that falls into the partition."""
    found = (key for i in range(10_000) if partition_of(key := TEXT + b"k%d" % i, partition_count) == partition)
    for _ in range(number):
        next(found)
    return next(found)


KEY = TEXT + b"k0"


def address(name: str) -> Address:
    return Address(f"{name}:{PORT}")


@functools.cache
def name_of(target: str) -> str:
    """The name of the member at an address."""
    return address_of(Address(target)).rpartition(":")[0]


def read_back(written: Iterable[tuple[int, LogRecord, int]]) -> Replay:
    """What a log gives."""
    replay = Replay()
    for each in written:
        replay.take(*each)
    return replay


class Link:
    """One connection in one direction; `queue` holds messages, and at its end perhaps the news that it broke."""

    def __init__(self, sender: MemberId, target: Target) -> None:
        self.sender = sender
        self.target = target
        self.queue: deque[tuple[int, m.Message | LinkLost]] = deque()
        self.is_open = False


class Cluster:
    """Some members, their links, and one clock."""

    def __init__(
        self,
        names: str = "",
        *,
        seeds: str | None = None,
        has_folders: bool = False,
        without_folders: str = "",
        **settings: Any,
    ) -> None:
        """Each letter of `names` is a member; they have joined, in this order, when this returns.

        `seeds`: names that every member gets as seeds; by default the first member. `has_folders`: each name has a folder, which
        its next process starts with. `without_folders`: names that have none all the same.
        """
        self.now = 100_000
        self.settings = {"partition_count": 1, "backup_count": 1} | settings
        self.seeds = names[:1] if seeds is None else seeds
        self.nodes: dict[str, Node] = {}
        self.links: dict[tuple[MemberId, Target], Link] = {}
        self.held: set[tuple[str, str]] = set()
        self.hung: set[str] = set()
        self.cuts: set[frozenset[str]] = set()
        self.events: list[tuple[str, Any]] = []
        """Every recorded event, with the name of its member, in order."""
        self.folders: dict[str, list[tuple[int, LogRecord, int]]] = {}
        """What the log of each name has: number, record, and when it was written."""
        self._has_folders = has_folders
        self._stores: dict[str, str] = {}
        """Names to the identity of their folders, where these are not the first ones."""
        self._without_folders = without_folders
        self._stamps: dict[str, int] = {}
        self.reserved: dict[str, int] = {}
        """Name to the greatest stamp that its log has reserved: a process that begins takes the power for cut."""
        self.finished: dict[str, Finished] = {}
        """How the latest incarnation of a member ended."""
        self.replies: dict[int, m.Reply] = {}
        self.views: dict[tuple[int, MemberId], MembersView] = {}
        self.swallow: Callable[[str, str, m.Message], bool] = lambda sender, receiver, message: False
        """Messages that vanish without a trace: what no link does, but a broken or overloaded process may."""
        self._checked: dict[MemberId, tuple[MembersView, PartitionTable]] = {}
        """Member to the view and the table with which `_check` has looked at it last."""
        self._serial = 0
        self._incarnations: dict[str, int] = {}
        self._last_id = 0
        self._woken: dict[str, int] = {}
        self._deadlines: dict[str, int | None] = {}
        """While time passes: when members that took no input since they were asked want to be woken."""
        for name in names:
            self.join(name)

    # --- members ---------------------------------------------------------------------------------------------------

    def start(
        self,
        name: str,
        *,
        seeds: str | None = None,
        after: Finished | None = None,
        log: ReplicaLog | None = None,
        **settings: Any,
    ) -> Node:
        """Begin a new incarnation; it has sent its first messages."""
        assert name not in self.nodes
        self._incarnations[name] = number = self._incarnations.get(name, 0) + 1
        asked = tuple(address(seed) for seed in (self.seeds if seeds is None else seeds))
        config = NodeConfig(seeds=asked, **(EXACT_TIMES | self.settings | settings))
        after_log = None
        if self._has_folders and name not in self._without_folders:
            written = self.folders.setdefault(name, [])
            log = ReplicaLog(written[-1][0] if written else 0, store=StoreStart(self._stores.get(name, name), number))
            last = self._stamps.get(name, 0)
            clock = ClockStart(last, max(last, self.reserved.get(name, 0)), 0, 0)
            read = read_back(written)
            log.cluster = read.index.cluster
            after_log = restore(read, clock, log) if after is None else None
        origin = after or after_log
        node = self.nodes[name] = Node(
            member_id(address(name), f"{name}{number}"),
            config,
            kept=origin.kept if origin else None,
            carried=origin.carried if origin else None,
            log=log,
        )
        self.finished.pop(name, None)
        self._woken[name] = self.now - 1
        self.feed(name, Started(origin.past if origin else None))
        return node

    def lose_folder(self, name: str) -> None:
        """The next process of this name starts with an empty folder."""
        del self.folders[name]
        self._stores[name] = f"{name}{self._incarnations[name] + 1}"

    def join(self, name: str, *, seeds: str | None = None, after: Finished | None = None) -> Node:
        """Start a member and let everything happen until all is quiet."""
        node = self.start(name, seeds=seeds, after=after)
        self.settle()
        if node.membership.view is None:
            self.advance(3_000)
        assert node.membership.view is not None, f"{name} did not join: {node!r}"
        return node

    def rejoin(self, name: str) -> Node:
        """What a driver does when an incarnation ended and wants to come back."""
        return self.join(name, after=self.finished[name])

    def gone(self) -> list[str]:
        """Names of those that ended and are to come back."""
        return [name for name in self.finished if name not in self.nodes and self.finished[name].rejoin]

    def come_back(self, name: str) -> None:
        """As `rejoin`, but nothing moves."""
        self.start(name, after=self.finished[name])

    def stay_together(self, names: str) -> None:
        """From now on nothing is cut or held back: within two minutes all are in one view."""
        self.cuts.clear()
        self.release()
        for _ in range(120):
            self.advance(1_000)
            for name in self.gone():
                self.come_back(name)
            if {"".join(sorted(view)) for view in self.views_of("".join(sorted(self.nodes)))} == {names}:
                return
        raise AssertionError(f"{ {name: self.view(name) for name in sorted(self.nodes)} }, ended: {self.gone()}")

    def id(self, name: str) -> MemberId:
        """The identity of the latest incarnation."""
        return member_id(address(name), f"{name}{self._incarnations[name]}")

    def ids(self, names: str) -> tuple[MemberId, ...]:
        return tuple(self.id(name) for name in names)

    def slots(self, row: str) -> Slots:
        """The replicas by index: `A-B`: A owns, nobody is the first backup, B is the second."""
        return tuple(None if name == "-" else self.id(name) for name in row)

    def feed(self, name: str, event: Input) -> None:
        """Give a member an input and carry out what it wants."""
        node = self.nodes[name]
        self._deadlines.pop(name, None)
        effects = node.handle(event, self.now)
        node.validate()
        if self._has_folders and name not in self._without_folders:
            self._write_log(name, node)
        for effect in effects:
            self._carry_out(name, node, effect)
        self._check(node)
        if node.log.is_wanted and self.nodes.get(name) is node and self.syncs_at_once(name):
            self.feed(name, Synced(node.log.last_lsn))

    def syncs_at_once(self, name: str) -> bool:
        """Whether the disk of a member syncs as soon as somebody waits for it."""
        return True

    def _write_log(self, name: str, node: Node) -> None:
        """Write what an input has logged: the process can end at any moment."""
        appended = node.log.take()
        if appended is not None:
            numbered = enumerate(appended.records, appended.first_lsn)
            self.folders[name] += [(lsn, record, self.now) for lsn, record in numbered]
            self._stamps[name] = node.clock.read(self.now)

    def _carry_out(self, name: str, node: Node, effect: Any) -> None:
        if isinstance(effect, Send):
            if is_client(effect.to):
                assert isinstance(effect.message, m.Reply), f"a client is sent what is no reply: {effect.message}"
                self._answered(effect.message)
            else:
                self._link(node.this, effect.to).queue.append((self._next_serial(), effect.message))
        elif isinstance(effect, Answer):
            self._answered(effect.reply)
        elif isinstance(effect, Record):
            self.events.append((name, effect.event))
        elif isinstance(effect, Finished):
            self.finished[name] = effect
            self._end(name, lose=False)

    def _answered(self, reply: m.Reply) -> None:
        assert reply.id not in self.replies, f"two answers to one call: {self.replies[reply.id]}, {reply}"
        self.replies[reply.id] = reply

    def _link(self, sender: MemberId, target: Target) -> Link:
        return self.links.setdefault((sender, target), Link(sender, target))

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def _check(self, node: Node) -> None:
        """What must hold between members."""
        view, mine = node.membership.view, node.installed_table.table
        checked = self._checked.get(node.this)
        if view is None or (checked is not None and checked[0] is view and checked[1] is mine):
            return  # members with another view or table since then were checked against these
        self._checked[node.this] = view, mine
        known = self.views.setdefault((view.version, view.maker), view)
        assert known == view, f"one master made two views of one version: {known}, {view}"
        for other in self.nodes.values():
            its = other.installed_table.table
            if other is node or other.membership.view != view or its is mine or len(its.rows) != len(mine.rows):
                continue
            # Sums may be equal where two destinations have committed different migrations ahead of the master's table.
            for partition, version in enumerate(mine.versions):
                rows = mine.slots(partition), its.slots(partition)
                assert version != its.versions[partition] or rows[0] == rows[1], (
                    f"two rows of version {version} of partition {partition}: {rows}"
                )

    # --- messages --------------------------------------------------------------------------------------------------

    def _links(self, sender: str, receiver: str) -> list[Link]:
        return [
            link for link in self.links.values() if name_of(link.sender) == sender and name_of(link.target) == receiver
        ]

    def pending(self, sender: str, receiver: str, kind: Any = object) -> list[Any]:
        """The messages that are on their way."""
        queued = sorted(entry for link in self._links(sender, receiver) for entry in link.queue)
        return [message for _, message in queued if isinstance(message, kind) and not isinstance(message, LinkLost)]

    def deliver(self, sender: str, receiver: str, kind: Any = None, count: int = 1) -> Any:
        """Deliver the next messages from one member to another; `kind`: all up to and including the first of it."""
        message = None
        while count:
            waiting = [link for link in self._links(sender, receiver) if link.queue]
            assert waiting, f"nothing (more) is on its way from {sender} to {receiver}; wanted {kind or count}"
            message = self._deliver_first(min(waiting, key=lambda link: link.queue[0][0]))
            if kind is None or isinstance(message, kind):
                count -= 1
        return message

    def _deliver_first(self, link: Link) -> Any:
        sender, receiver = name_of(link.sender), name_of(link.target)
        if not link.is_open and not isinstance(link.queue[0][1], LinkLost):
            reason = self._refusal(link)
            sends = self._alive(link.sender)
            if reason:
                del self.links[link.sender, link.target]
                if sends:
                    self.feed(sender, LinkRefused(link.target, reason, is_deserted=reason == DESERTED))
                return None
            link.is_open = True
            if sends:
                self.feed(sender, LinkUp(link.target))
        _, message = link.queue.popleft()
        if isinstance(message, LinkLost):
            del self.links[link.sender, link.target]
            if receiver in self.nodes:
                self._drop(self.nodes[receiver].this, sender)
                self.feed(receiver, message)
        elif not self.swallow(sender, receiver, message):
            self.feed(receiver, Received(link.sender, message))
        return message

    def _alive(self, member: MemberId) -> bool:
        node = self.nodes.get(name_of(member))
        return node is not None and node.this == member

    def _refusal(self, link: Link) -> str:
        sender, receiver = name_of(link.sender), name_of(link.target)
        if frozenset((sender, receiver)) in self.cuts:
            return "no route to the host"
        if receiver not in self.nodes:
            return DESERTED
        if is_member(link.target) and not self._alive(MemberId(link.target)):
            return "another incarnation listens there"
        return ""

    def settle(self) -> None:
        """Deliver everything that is not held back, oldest first, until nothing is left. No time passes."""
        for _ in range(100_000):
            ready = [link for link in self.links.values() if link.queue and not self._is_held(link)]
            if not ready:
                return
            self._deliver_first(min(ready, key=lambda link: link.queue[0][0]))
        raise AssertionError("messages go on for ever")

    def step(self) -> bool:
        """Deliver the oldest message of all, held back or not, except to one that hangs; False: there was none."""
        ready = [link for link in self.links.values() if link.queue and name_of(link.target) not in self.hung]
        if ready:
            self._deliver_first(min(ready, key=lambda link: link.queue[0][0]))
        return bool(ready)

    def _is_held(self, link: Link) -> bool:
        sender, receiver = name_of(link.sender), name_of(link.target)
        return receiver in self.hung or (sender, receiver) in self.held

    def hold(self, senders: str, receivers: str) -> None:
        """Keep back messages of these pairs; `deliver` still delivers them one by one."""
        self.held |= {(sender, receiver) for sender in senders for receiver in receivers if sender != receiver}

    def hold_all(self) -> None:
        names = "".join(self._incarnations)
        self.hold(names, names)

    def release(self, senders: str = "", receivers: str = "") -> None:
        """Keep back no more; without arguments: nothing at all."""
        if senders:
            self.held -= {(sender, receiver) for sender in senders for receiver in receivers}
        else:
            self.held.clear()

    def advance(self, ms: int) -> None:
        """Let time pass. Members are woken at their deadlines; what is not held back arrives at once."""
        end = self.now + ms
        self.settle()
        self._deadlines.clear()  # the test may have changed something in the members itself
        for node in self.nodes.values():
            node.alarms.follow()
        for _ in range(200_000):
            due = []
            for name in [name for name in self.nodes if name not in self.hung]:
                if name not in self._deadlines:
                    self._deadlines[name] = self.nodes[name].next_deadline()
                deadline = self._deadlines[name]
                if deadline is not None:
                    due.append((max(deadline, self.now, self._woken[name] + 1), name))
            if not due or min(due)[0] > end:
                self.now = end
                return
            self.now, name = min(due)
            self._woken[name] = self.now
            self.feed(name, TimePassed())
            self.settle()
        raise AssertionError("time does not get on")

    # --- faults ----------------------------------------------------------------------------------------------------

    def crash(self, names: str, *, lose: bool = True) -> None:
        """End processes. `lose`: what they sent and did not arrive is lost. Others learn of it by `settle`."""
        for name in names:
            self._end(name, lose=lose)

    def _end(self, name: str, *, lose: bool) -> None:
        member = self.nodes.pop(name).this
        self.hung.discard(name)
        peers = {
            name_of(link.sender if name_of(link.sender) != name else link.target)
            for link in self.links.values()
            if name in (name_of(link.sender), name_of(link.target)) and (link.is_open or link.queue)
        }
        for key in [key for key, link in self.links.items() if name_of(link.target) == name]:
            del self.links[key]
        for link in [link for link in self.links.values() if link.sender == member]:
            if lose:
                link.queue.clear()
        for peer in sorted(peers):
            if peer in self.nodes:
                target = self.nodes[peer].this
                self._link(member, target).queue.append((self._next_serial(), LinkLost(member)))

    def hang(self, name: str) -> None:
        """The process does not run; its connections stay open."""
        self.hung.add(name)

    def resume(self, name: str) -> None:
        """It runs again; it has not noticed yet that time has passed."""
        self.hung.discard(name)

    def _drop(self, sender: MemberId, receiver: str) -> None:
        for key in [key for key in self.links if key[0] == sender and name_of(key[1]) == receiver]:
            del self.links[key]

    def lose_link(self, one: str, other: str, *, tell: Iterable[str] | None = None, one_way: bool = False) -> None:
        """Break the links between two members, or only the one from the first to the second; messages are lost.

        `tell`: who learns of it now, in this order (both, by default); the others when `tell_lost` says so.
        """
        self._drop(self.nodes[one].this, other)
        if not one_way:
            self._drop(self.nodes[other].this, one)
        for name in (one, other) if tell is None else tell:
            self.tell_lost(name, other if name == one else one)

    def tell_lost(self, name: str, peer: str) -> None:
        self.feed(name, LinkLost(self.id(peer)))

    def cut(self, ones: str, others: str) -> None:
        """No connection between these members, until `heal`; those that are open break."""
        for one in ones:
            for other in others:
                self.cuts.add(frozenset((one, other)))
                self.lose_link(one, other)

    def heal(self) -> None:
        self.cuts.clear()

    # --- requests --------------------------------------------------------------------------------------------------

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def ask(self, name: str, make: Callable[..., m.Request], *fields: Any) -> int:
        """A client's request to a member: `ask("A", m.Get, MAP, KEY)`; the number under which its reply will be.

        Where it names partitions and not how many there are, there are as many as that member knows.
        """
        if make in NAMES_PARTITIONS and len(fields) == REQUIRED_FIELDS[make] - 2:
            fields = (*fields[:2], self.table(name).partition_count, *fields[2:])
        request = make(self.next_id(), *fields)
        self.feed(name, Received(CLIENT, request))
        return request.id

    @staticmethod
    def received(request: m.Request) -> Received:
        """A client's request as an input."""
        return Received(CLIENT, request)

    def put(self, name: str, key: bytes, value: bytes, ttl_ms: int = 0) -> int:
        return self.ask(name, m.Put, MAP, key, value, ttl_ms)

    def call(self, name: str, make: Callable[..., m.Request], *fields: Any, partition: int = 0) -> int:
        """A call of the program that embeds a member."""
        request = make(self.next_id(), *fields)
        self.feed(name, Call(partition, request))
        return request.id

    def get(self, name: str, key: bytes) -> bytes | None:
        """What a member answers to a Get at once. It must own the key's partition."""
        return self.reply(self.ask(name, m.Get, MAP, key), m.ValueReply).value

    def reply(self, request_id: int, kind: type[Kind]) -> Kind:
        """The reply to a request, which must be there and of this kind."""
        reply = self.replies[request_id]
        assert isinstance(reply, kind), reply
        return reply

    def is_done(self, request_id: int) -> bool:
        """Whether a write was confirmed."""
        reply = self.replies.get(request_id)
        return reply is not None and not isinstance(reply, m.ErrorReply)

    def leave(self, name: str, *, keeps: bool = False) -> None:
        """`keeps`: it comes back with what it has in its folder."""
        self.feed(name, LeaveWanted(keeps))

    def say(self, sender: str, receiver: str, message: m.Message) -> None:
        """Deliver a message that the test made up, as if the sender had sent it."""
        self.feed(receiver, Received(self.id(sender), message))

    # --- looking ---------------------------------------------------------------------------------------------------

    def view(self, name: str) -> str:
        """The names in a member's view, oldest first; empty when it has none."""
        view = self.nodes[name].membership.view
        return "".join(name_of(member) for member in view.members) if view is not None else ""

    def members_view(self, name: str) -> MembersView:
        """The view of a member, which must have one."""
        view = self.nodes[name].membership.view
        assert view is not None, f"{name} has no view"
        return view

    def views_of(self, names: str) -> list[str]:
        return [self.view(name) for name in names]

    def version(self, name: str) -> int:
        view = self.nodes[name].membership.view
        return view.version if view is not None else 0

    def master(self, name: str) -> str:
        master = self.nodes[name].membership.master
        return name_of(master) if master is not None else ""

    def suspects(self, name: str) -> str:
        return "".join(sorted(name_of(member) for member in self.nodes[name].membership.suspicions.suspected))

    def table(self, name: str) -> PartitionTable:
        return self.nodes[name].installed_table.table

    def replicas(self, name: str, partition: int = 0) -> str:
        """The names of a partition's replicas, owner first, by a member's table."""
        return "".join(name_of(member) for member in self.table(name).replicas(partition))

    def row(self, name: str, partition: int = 0) -> str:
        """As `replicas`, with `-` where the replica of an index is missing."""
        slots = self.table(name).slots(partition)
        return "".join("-" if member is None else name_of(member) for member in slots)

    def events_of(self, name: str, kind: Any) -> list[Any]:
        return [event for who, event in self.events if who == name and isinstance(event, kind)]

    def owned(self, name: str, partition: int = 0) -> OwnedPartition:
        """What a member has of a partition that it must own."""
        owned = self.nodes[name].grid.ownership.find_owned(partition)
        assert owned is not None, f"{name} does not own partition {partition}"
        return owned

    def partition_of(self, replicas: str) -> int:
        """The first partition whose replicas begin with these members, by the table of the first of them."""
        table = self.table(replicas[0])
        for partition in range(table.partition_count):
            if self.replicas(replicas[0], partition).startswith(replicas):
                return partition
        raise AssertionError(f"no partition is held by {replicas}: {table}")

    def key(self, partition: int, number: int = 0) -> bytes:
        """The `number`-th key of a fixed series that falls into the partition."""
        return key_of(partition, self.settings["partition_count"], number)

    def entries(self, name: str, partition: int = 0) -> dict[bytes, bytes] | None:
        """What a member's replica holds of the map, whatever its role; None where it has no replica."""
        grid = self.nodes[name].grid
        owned = grid.ownership.find_owned(partition)
        replica = owned.replica if owned is not None else grid.follower.replicas.get(partition)
        if replica is None:
            return None
        store = replica.maps.get(MAP)
        return {key: value_of(stored) for key, stored in store.entries.items()} if store is not None else {}

    def kept(self, name: str, partition: int = 0) -> Any:
        """What a member's replica knows of the map, with all stamps: entries, ends, tombstones, last clear, purged to."""
        grid = self.nodes[name].grid
        owned = grid.ownership.find_owned(partition)
        replica = owned.replica if owned is not None else grid.follower.replicas[partition]
        if (cleared := replica.cleared.get(MAP)) is not None:
            return {}, [], {}, *cleared
        store = replica.maps.get(MAP)
        if store is None:
            return None
        return dict(store.entries), sorted(store.covering), dict(store.tombstones), store.cleared_at, store.purged_to

    def assign(self, name: str = "", *, rows: Sequence[str] | None = None) -> None:
        """Make the cluster assign its partitions, as it likes or as `rows` says (`A-B`: one is missing)."""
        if rows is not None:
            wanted = [self.slots(row) for row in rows]
            with patch("phalanx.partition.coordinator.eligibility.assign", lambda table, members, backup_count: wanted):
                self.assign(name)
            return
        self.ask(name or next(iter(self.nodes)), m.GetTable, True)
        self.settle()
        self.advance(200)


class Lone:
    """One member among peers that exist only in the test: it hears what the test says, and what it sends is looked at."""

    def __init__(self, name: str, members: str, version: int, *, maker: str = "", **settings: Any) -> None:
        """The member has joined: it has the list of these members, made by their first unless told otherwise."""
        self.now = 100_000
        config = NodeConfig(seeds=(address("Z"),), **(EXACT_TIMES | {"partition_count": 1} | settings))
        self.node = Node(lone_id(name), config)
        self.sent: list[tuple[str, Any]] = []
        self.events: list[Any] = []
        self.finished: Finished | None = None
        self.feed(Started())
        view = lone_view(members, version, maker=maker)
        self.hear(members[0], m.JoinResponse(1, view))
        assert self.node.membership.view == view
        self.sent.clear()
        self.events.clear()

    @property
    def membership(self) -> MembershipService:
        return self.node.membership

    def feed(self, event: Input) -> None:
        for effect in self.node.handle(event, self.now):
            if isinstance(effect, Send):
                self.sent.append((name_of(effect.to), effect.message))
            elif isinstance(effect, Record):
                self.events.append(effect.event)
            elif isinstance(effect, Finished):
                self.finished = effect
        self.node.validate()

    def hear(self, name: str, message: m.Message) -> None:
        self.feed(Received(lone_id(name), message))

    def hear_from(self, names: str) -> None:
        """A heartbeat of each, from one that has the same list, and follows this member if it is the master."""
        for name in names:
            view = self.membership.view
            assert view is not None
            self.hear(name, m.Heartbeat(view.version, view.maker))
            if self.membership.is_master:
                self.hear(name, m.MasterConfirmation(view.version, view.maker, -1))

    def advance(self, ms: int, *, hearing: str = "") -> None:
        """Let time pass, with heartbeats of the named members meanwhile."""
        end = self.now + ms
        woken = -1
        for _ in range(10_000):
            deadline = self.node.next_deadline()
            if deadline is None or max(deadline, woken + 1) > end:
                self.now = end
                return
            self.now = woken = max(deadline, self.now, woken + 1)
            self.hear_from(hearing)
            if self.finished is None:
                self.feed(TimePassed())
        raise AssertionError("time does not get on")

    def refuse(self, names: str, *, hearing: str = "") -> None:
        """Connections to these members are refused until they are suspected."""
        for name in names:
            self.feed(LinkLost(lone_id(name)))
        for _ in range(8):
            for name in names:
                if self.membership.view is not None and lone_id(name) in self.membership.view:
                    self.feed(LinkRefused(lone_id(name), "connection refused"))
            self.advance(60, hearing=hearing)

    def sent_to(self, name: str, kind: Any = object) -> list[Any]:
        return [message for to, message in self.sent if to == name and isinstance(message, kind)]

    def sent_of(self, kind: Any) -> list[tuple[str, Any]]:
        return [(to, message) for to, message in self.sent if isinstance(message, kind)]

    def events_of(self, kind: Any) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def view(self) -> str:
        view = self.membership.view
        return "".join(name_of(member) for member in view.members) if view is not None else ""


def lone_id(name: str) -> MemberId:
    return member_id(address(name), f"{name}1")


def lone_context(name: str, config: NodeConfig = NodeConfig()) -> LocalContext:  # noqa: B008  # it never changes
    """What machines of a member without others are made with."""
    return LocalContext(lone_id(name), config, this_release(), Outbox(lone_id(name)))


def lone_view(
    members: str, version: int, *, maker: str = "", cluster_version: int = OLDEST_PROTOCOL_VERSION
) -> MembersView:
    ids = tuple(lone_id(name) for name in members)
    return MembersView(version, lone_id(maker or members[0]), ids, cluster_version=cluster_version)


def local_at(c: Cluster, name: str = "A") -> LocalAccess:
    """What a member does at once for its own program."""
    return LocalAccess(lambda: c.now, lambda: 1, node=c.nodes[name])
