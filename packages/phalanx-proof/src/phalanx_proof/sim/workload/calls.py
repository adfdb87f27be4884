"""The programs that embed the members: they call the map and note the answers.

Registers take every kind of operation, with a value that is written once only. Counters are raised by compare-and-set.
Numbers are raised by one, where they are, by their key or by a condition that only they fulfil. Locks are taken by put-if-absent and never given back.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from phalanx.codec.hashing import partition_of
from phalanx.codec.values import from_data, to_data
from phalanx.common.errors import ErrorCode
from phalanx.common.ids import MemberId, Millis
from phalanx.common.invariant import invariant
from phalanx.machine.inputs import Call
from phalanx.wire import messages as m
from phalanx.wire.conditions import Condition, Kind, Relation
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.cluster.world import World
from phalanx_proof.sim.history.operations import Operation, Outcome
from phalanx_proof.sim.options import MAP as MAP
from phalanx_proof.sim.options import HistoryOptions

TEXT = b"\xff\xff\xff\xf5"
"""The type id of a string: what keys and values begin with."""
LOCKS = 12
BULK = 4

ONE_REGISTER = frozenset({"get", "put", "get_and_put", "put_if_absent", "replace", "remove"})
ZERO, ONE = to_data(0), to_data(1)
IS_NUMBER = (Condition(-1, ("value",), Kind.NUMBER, Relation.AT_LEAST, (ZERO,)),)
OF_PARTITIONS = frozenset({"get_all", "put_all", "count_where"})
"""Kinds of calls that are handed back to the program: of the keys of several partitions, or of one that can be divided."""

FAILED_CODES = (ErrorCode.UNAVAILABLE, ErrorCode.NOT_READY, ErrorCode.NOT_ENOUGH_MEMBERS, ErrorCode.GRID_FULL)
UNKNOWN_CODES = (ErrorCode.INDETERMINATE, ErrorCode.OWNERSHIP_LOST)
HANDED_BACK_CODES = (ErrorCode.NOT_OWNER, ErrorCode.OWNERSHIP_LOST)


class Workload:
    """Issues calls at every member that has joined, and keeps the history."""

    def __init__(self, options: HistoryOptions) -> None:
        self.operations: list[Operation] = []
        self.pending: dict[int, Operation] = {}
        self.others: dict[int, MemberId] = {}
        """Calls of other programs under way: their numbers, and the members at which they run."""
        self.final: dict[bytes, Operation] = {}
        """Key to the read of it after everything healed."""
        self.registers = [TEXT + b"r%d" % number for number in range(options.registers)]
        self.counters = [TEXT + b"c%d" % number for number in range(options.counters)]
        self.numbers = [TEXT + b"n%d" % number for number in range(options.counters)]
        self.locks = [TEXT + b"l%d" % number for number in range(LOCKS)]
        self.keys = self.registers + self.counters + self.numbers + self.locks
        self.wrong_answers: list[tuple[Operation, str]] = []
        """Sensible calls that were refused, or answered wrongly, and how."""
        self.handed_back: list[Operation] = []
        """Bulk calls whose caller had to group the keys anew, because an owner changed."""
        self.on_refusal: Callable[[Operation, ErrorCode], None] = lambda operation, code: None
        """Is called with each call that was refused."""
        self._options = options
        self._rng = Random(f"workload:{options.profile}:{options.seed}")
        self._kinds = [kind for kind, weight in options.mix.items() for _ in range(weight)]
        self._twice_mean_ms = 2_000 / options.operations_per_second if options.operations_per_second else 0.0
        self._next_id = self._turns = 0
        self._kept = _numbers_in(options.kept_calls)
        self._runs = True
        self._world: World

    def begin(self, world: World) -> None:
        """Start the programs."""
        self._world = world
        if not self._twice_mean_ms:
            return
        for host in world.hosts:
            host.next_turn = self._rng.random() * 1_000
            world.queue.call_at(int(host.next_turn), self._turn, host)

    def stop(self) -> None:
        self._runs = False

    def _turn(self, host: Host) -> None:
        """Make one call at a host, and schedule the next."""
        if not self._runs:
            return
        rng, now = self._rng, self._world.queue.now
        host.next_turn += self._twice_mean_ms * rng.random()
        self._world.queue.call_at(max(int(host.next_turn), now), self._turn, host)
        node = host.node
        if node is None or host.paused_until or node.membership.view is None:
            return
        kind = self._kinds[int(rng.random() * len(self._kinds))]
        if kind in ONE_REGISTER:
            keys: tuple[bytes, ...] = (self.registers[int(rng.random() * len(self.registers))],)
        elif kind == "increment":
            kind, keys = "read_counter", (self.counters[int(rng.random() * len(self.counters))],)
        elif kind == "count":
            keys = (self.numbers[int(rng.random() * len(self.numbers))],)
        elif kind == "count_where":
            first = self.numbers[int(rng.random() * len(self.numbers))]
            partition = self._partition_of(first, host)
            keys = tuple(key for key in self.numbers if self._partition_of(key, host) == partition)
        elif kind == "lock":
            keys = (self.locks[int(rng.random() * LOCKS)],)
        else:
            keys = self._keys_of_one_owner(host)
        self._turns += 1
        if self._kept is None or self._turns in self._kept:
            self._ask(host, kind, keys)

    # --- asking ----------------------------------------------------------------------------------------------------

    def _keys_of_one_owner(self, host: Host) -> tuple[bytes, ...]:
        """Choose keys that one member owns by the table that the host has; without a table, keys of one partition."""
        rng = self._rng
        drawn = dict.fromkeys(self.registers[int(rng.random() * len(self.registers))] for _ in range(BULK))
        partitions = {key: self._partition_of(key, host) for key in drawn}
        first = partitions[next(iter(drawn))]
        table = host.table
        owner = table.owner(first) if table is not None else None
        return tuple(
            key
            for key, partition in partitions.items()
            if partition == first or (owner and table and table.owner(partition) == owner)
        )

    def _partition_of(self, key: bytes, host: Host) -> int:
        """Return the partition of a key by the table that the host has."""
        return partition_of(key, host.table.partition_count if host.table is not None else self._options.partitions)

    def _ask(self, host: Host, kind: str, keys: tuple[bytes, ...], expected: bytes | None = None) -> Operation:
        member: MemberId = host.running_node.this
        number = self.next_number()
        operation = Operation(number, kind, host.number, member, keys, self._world.queue.now)
        operation.expected = expected
        request = self._count_where(operation, host) if kind == "count_where" else self._request(operation)
        self.operations.append(operation)
        self.pending[number] = operation
        self._world.feed(host, member, Call(self._partition_of(keys[0], host), request))
        return operation

    def _count_where(self, operation: Operation, host: Host) -> m.UpdateWhere:
        """Return the request to raise the numbers of a partition: they alone fulfil the condition."""
        partition_count = host.table.partition_count if host.table is not None else self._options.partitions
        partition, open_from = partition_of(operation.keys[0], partition_count), self._open_from(operation)
        return m.UpdateWhere(
            operation.id, MAP, partition, partition_count, b"", "increment", [ONE], IS_NUMBER, 0, open_from
        )

    def next_number(self) -> int:
        """Return the number of the next call, of all programs."""
        self._next_id += 1
        return self._next_id

    def _request(self, operation: Operation) -> m.Request:
        number, kind, key = operation.id, operation.kind, operation.keys[0]
        if kind == "get" or kind == "read_counter":  # the usual ones first, and fast
            return m.Get(number, MAP, key)
        if kind == "put":
            operation.values = (TEXT + b"v%d.0" % number,)
            return m.Put(number, MAP, key, operation.values[0], 0, 0, self._open_from(operation))
        if kind == "get_all":
            return m.GetAll(number, MAP, list(operation.keys))
        if kind == "remove":
            return m.Remove(number, MAP, key, 0, self._open_from(operation))
        if kind == "count":
            return m.UpdateValue(number, MAP, key, "increment", [ONE, ZERO], None, 0, self._open_from(operation))
        if kind == "write_counter":
            if operation.expected is None:
                operation.values = (TEXT + b"1",)
                return m.PutIfAbsent(number, MAP, key, operation.values[0], 0, 0, self._open_from(operation))
            operation.values = (TEXT + b"%d" % (int(operation.expected[4:]) + 1),)
            open_from = self._open_from(operation)
            return m.Replace(number, MAP, key, operation.expected, operation.values[0], 0, 0, open_from)
        operation.values = tuple(TEXT + b"v%d.%d" % (number, index) for index in range(len(operation.keys)))
        value = operation.values[0]
        if kind == "get_and_put":
            return m.UpdateValue(number, MAP, key, "get_and_put", [value], 0, 0, self._open_from(operation))
        if kind == "put_all":
            return m.PutAll(number, MAP, list(operation.keys), list(operation.values), 0)
        if kind in ("put_if_absent", "lock"):
            return m.PutIfAbsent(number, MAP, key, value, 0, 0, self._open_from(operation))
        invariant(kind == "replace", "every kind of operation has a request", kind=kind)
        operation.expected = self._some_expectation(key)
        return m.Replace(number, MAP, key, operation.expected, value, 0, 0, self._open_from(operation))

    def _open_from(self, operation: Operation) -> int:
        """Return the lowest number of a call that is under way at the member that asks."""
        return self.open_from(operation.member, operation.id)

    def open_from(self, member: MemberId, number: int) -> int:
        """Return the lowest number of a call that is under way at a member whose next call has this number."""
        lowest = next((each for each, other in self.pending.items() if other.member == member), number)
        if self.others:
            lowest = min([lowest, *(each for each, other in self.others.items() if other == member)])
        return lowest

    def _some_expectation(self, key: bytes) -> bytes | None:
        """Choose a value that the key can have now, or None (any value will do)."""
        if self._rng.random() < 0.3:
            return None
        for operation in self.operations[: -min(len(self.operations), 200) - 1 : -1]:
            if operation.values and key in operation.keys and operation.outcome is Outcome.OK:
                return operation.values[operation.keys.index(key)]
        return None

    def read_all(self) -> None:
        """Read every key once, at one member after another."""
        joined = [host for host in self._world.hosts if host.has_joined]
        # One whose disk has failed leaves when it holds nothing, and ends its calls.
        hosts = [host for host in joined if not host.has_failed_disk] or joined
        for index, key in enumerate(self.keys):
            self.final[key] = self._ask(hosts[index % len(hosts)], "get", (key,))

    # --- being told ------------------------------------------------------------------------------------------------

    def on_answer(self, host: Host, reply: m.Reply, replier: MemberId, now: Millis) -> None:
        """End a call."""
        done = self.pending.pop(reply.id)  # a KeyError here: a call was answered twice
        done.end = now
        done.replier = replier
        kind = type(reply)
        if kind is m.ValueReply:
            value: bytes | None = reply.value  # type: ignore[union-attr]  # by its kind
            if value is not None and done.keys[0][4:5] == b"n":
                value = TEXT + b"%d" % from_data(value)  # as the answers of counters have it: as a text
            done.result = (value,)
        elif kind is m.ErrorReply:
            self._on_error(done, reply.code, reply.text)  # type: ignore[union-attr]  # by its kind
            self._check_patience(done, host, reply.lost)  # type: ignore[union-attr]  # by its kind
            return
        elif kind is m.ValuesReply:
            done.result = tuple(reply.values)  # type: ignore[union-attr]  # by its kind
            if len(done.result) != len(done.keys):
                self.wrong_answers.append((done, f"{len(done.result)} values for {len(done.keys)} keys"))
        elif kind is m.FlagReply:
            done.result = reply.flag  # type: ignore[union-attr]  # by its kind
        elif kind is m.UpdatedReply:
            done.result = self._changed(done, reply)  # type: ignore[arg-type]  # by its kind
        elif kind is not m.DoneReply:
            self.wrong_answers.append((done, f"answered by {kind.__name__}"))
        done.outcome = Outcome.OK
        if done.kind == "read_counter" and self._runs and host.node is not None and host.node.this == done.member:
            # Not within the input that is being handled: a program goes on in the next turn.
            found = done.result[0] if isinstance(done.result, tuple) else None
            self._world.queue.call_at(now + 1, self._raise_counter, host, done.member, done.keys, found)

    def _changed(self, operation: Operation, reply: m.UpdatedReply) -> bool | None:
        """Return whether the numbers that were meant were changed; None: some were, and it is not told which."""
        if reply.changed > len(operation.keys) or reply.failed or reply.more:
            self.wrong_answers.append((operation, f"told of another slice: {reply}"))
        return reply.changed == len(operation.keys) or (None if reply.changed else False)

    def _raise_counter(self, host: Host, member: MemberId, keys: tuple[bytes, ...], value: bytes | None) -> None:
        if self._runs and host.member == member and not host.paused_until:
            self._ask(host, "write_counter", keys, value)

    def _on_error(self, operation: Operation, code: ErrorCode, text: str) -> None:
        self.on_refusal(operation, code)
        if operation.kind in OF_PARTITIONS and code in HANDED_BACK_CODES:
            self.handed_back.append(operation)
        if code in FAILED_CODES or (code is ErrorCode.NOT_OWNER and operation.kind in OF_PARTITIONS):
            operation.outcome = Outcome.FAILED
        elif code in UNKNOWN_CODES:
            operation.outcome = Outcome.INDETERMINATE
        else:
            operation.outcome = Outcome.INDETERMINATE
            self.wrong_answers.append((operation, f"refused: {code.name}: {text}"))

    def _check_patience(self, operation: Operation, host: Host, lost: tuple[str, ...]) -> None:
        """Check that a write of one key goes on until its time is over, whatever happens to owners, or its own member
        ends, or two other members have ended under it (`lost`).
        """
        if self._options.protection.is_on or self._options.memory_limit or self._options.disks_fail:
            return  # A side that has become too small, or an owner that is full or has no disk, ends it at once, and does not say that it was done.
        has_ended = host.node is None or host.node.membership.is_over
        waited_ms = operation.end - operation.begin
        view = host.node.membership.view if host.node is not None else None
        have_two_ended = len(set(lost)) == 2 and view is not None and not any(member in view for member in lost)
        is_patient = has_ended or have_two_ended or waited_ms >= self._options.call_timeout_ms // 2
        if operation.outcome is Outcome.INDETERMINATE and operation.kind not in OF_PARTITIONS and not is_patient:
            self.wrong_answers.append((operation, f"unknown after {waited_ms} ms"))

    def on_process_ended(self, member: MemberId, now: Millis) -> None:
        """End the calls of a process that has ended: nobody gets their outcome."""
        for operation in [o for o in self.pending.values() if o.member == member]:
            del self.pending[operation.id]
            operation.end = now
            operation.outcome = Outcome.INDETERMINATE


def _numbers_in(ranges: tuple[tuple[int, int], ...] | None) -> frozenset[int] | None:
    return None if ranges is None else frozenset(n for first, last in ranges for n in range(first, last + 1))
