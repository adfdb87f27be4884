"""Redis clients of the members: each speaks to one member through the machine that a real connection has (`phalanx_protocols.resp`).

They repeat nothing. Counters are shared by all, and only ever incremented; a register is of one connection, which sets it to greater
numbers one after another, and reads it. When the process of its member ends, a client does not know what became of its last commands,
and connects anew.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from phalanx.calls.lost_members import TWO_ENDED
from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_data
from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.endpoints.protocol import Effect, SendBytes, SendRequest, effects_of
from phalanx.machine.inputs import Call
from phalanx.node.local_access import LocalAccess
from phalanx.wire import messages as m
from phalanx_proof.sim.checkers.evidence import Evidence
from phalanx_proof.sim.checkers.redis_checker import Merges, RedisCounter, RedisKey, Register, check_redis
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.options import REDIS, HistoryOptions
from phalanx_proof.sim.workload.calls import Workload
from phalanx_proof.sim.workload.program import CallingProgram
from phalanx_protocols.resp.connection import RespConnection
from phalanx_protocols.resp.framing import command
from phalanx_protocols.resp.server import RespServer

COUNTERS = 6
MARKS = {"set": b"+", "get": b"$", "incr": b":"}
"""What the answer of a command begins with."""
MOST_TOGETHER = 4
"""The most commands that a client sends in one piece."""
READ_GIVEN_UP = f"-ERR {TWO_ENDED}".encode()
"""So begins the answer to a read under which two members ended: it is asked of no third one."""


class SimulatedGrid:
    """What a simulated member lends to its endpoint: nothing at once, so each command is a request."""

    call_timeout_s = 30.0
    max_frame_bytes = max_answer_bytes = 64 * 1024 * 1024
    view: MembersView | None = None
    table: PartitionTable | None = None

    def __init__(self, host: Host, member: MemberId, workload: Workload, options: HistoryOptions) -> None:
        self.host, self.member = host, member
        self._workload, self._options = workload, options
        self._last = 0
        self.local = LocalAccess(lambda: 0, lambda: self.partition_count)

    @property
    def open_from(self) -> int:
        return self._workload.open_from(self.member, self._last)

    @property
    def partition_count(self) -> int:
        return self.host.table.partition_count if self.host.table is not None else self._options.partitions

    def next_id(self) -> int:
        self._last = self._workload.next_number()
        return self._last

    def clock_s(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return 0

    def draw(self, below: int) -> int:
        return 0

    def failed(self, what: str, error: Exception) -> None:
        raise error


class _Client:
    """One client while it is connected: what it has sent, and what it was told."""

    def __init__(self, number: int, host: Host, grid: SimulatedGrid) -> None:
        self.host, self.grid = host, grid
        server = RespServer(grid, None, (REDIS,))
        self.machine: RespConnection = server.connect(1, "", grid.member, 0)  # type: ignore[arg-type]  # only shown
        self.register = Register(b"register %d" % number)
        self.waiting: deque[tuple[str, Any]] = deque()
        """What the answers that are to come belong to: set with its number, get, or incr with its counter."""
        self.rest = b""


class RedisUsers(CallingProgram[tuple[_Client, int, RedisKey | None]]):
    """All these clients of one history. A request is remembered by the client, what its machine calls it, and the key that it writes."""

    stream = "redis"
    most_together = MOST_TOGETHER

    def __init__(self, options: HistoryOptions, workload: Workload, evidence: Evidence) -> None:
        super().__init__(options, workload, evidence)
        self.counters = [RedisCounter(b"counter %d" % number) for number in range(COUNTERS)]
        self.registers: list[Register] = []
        self.wrong: list[tuple[RedisKey, str]] = []
        """Answers that no promise allows."""
        self.commands = 0
        """Commands that were answered without an error."""
        self.errors = 0
        self._clients: dict[int, _Client] = {}
        """Number of a host to the client of its member."""
        self._connected = 0

    def _start(self) -> None:
        for host in self._world.hosts:
            self._plan_turn(host, self._rng.randrange(1_000))

    def unmet(self) -> list[str]:
        return [
            f"a Redis client of {each.host.number} waits for {each.waiting[0]}"
            for each in self._clients.values()
            if each.waiting
        ]

    def _plan_turn(self, host: Host, after_ms: Millis) -> None:
        self._world.queue.call_at(self._world.now + max(after_ms, 1), self._turn, host)

    def _turn(self, host: Host) -> None:
        """Let the client of a host send some commands, unless it waits for answers."""
        if not self._runs:
            return
        self._plan_turn(host, self._rng.randrange(20, 400))
        if host.node is None or host.paused_until or host.node.membership.view is None:
            return
        client = self._clients.get(host.number)
        if client is None or client.grid.member != host.node.this:
            client = self._connect(host, host.node.this)
        if client.waiting:
            return
        data = b"".join(self._command(client) for _ in range(self._rng.randint(1, self.most_together)))
        cut = self._rng.randrange(len(data))
        for piece in (data[:cut], data[cut:]):
            if piece:
                self._carry_out(client, effects_of(client.machine.received(piece, self._world.now)))

    def _connect(self, host: Host, member: MemberId) -> _Client:
        self._connected += 1
        client = _Client(self._connected, host, SimulatedGrid(host, member, self._workload, self._options))
        self._clients[host.number] = client
        self.registers.append(client.register)
        self._carry_out(client, client.machine.opened(self._world.now))
        return client

    def _command(self, client: _Client) -> bytes:
        kind, register = self._rng.random(), client.register
        if kind < 0.3:
            number = register.send(self._world.now)
            client.waiting.append(("set", number))
            return command(b"SET", register.key, b"%d" % number)
        if kind < 0.5:
            client.waiting.append(("get", None))
            return command(b"GET", register.key)
        counter = self._rng.choice(self.counters)
        counter.sent += 1
        client.waiting.append(("incr", counter))
        return command(b"INCR", counter.key)

    # --- what the machine wants, and what it tells ---------------------------------------------------------------------

    def _carry_out(self, client: _Client, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendBytes):
                self._on_bytes(client, effect.data)
            elif isinstance(effect, SendRequest):
                asked = client, effect.number, self._written(client, effect.request)
                self._call(client.host, client.grid.member, Call(effect.partition, effect.request), asked)

    def _written(self, client: _Client, request: Any) -> RedisKey | None:
        """Return the key that a request writes; None: it only reads."""
        if isinstance(request, m.Get):
            return None
        return next((each for each in self.counters if to_data(each.key) == request.key), client.register)

    def on_answer(self, reply: Any, replier: MemberId) -> None:
        """Hand an answer to the machine, not within the input that is being handled."""
        client, number, key = self._end_call(reply.id)
        if key is not None and not isinstance(reply, m.ErrorReply):
            key.acknowledged_by.append((replier, self._world.now))
        self._world.queue.call_at(self._world.now + 1, self._hand_on, client, number, reply)

    def _hand_on(self, client: _Client, number: int, reply: Any) -> None:
        if self._clients.get(client.host.number) is not client:
            return
        self._carry_out(client, client.machine.answered(number, reply, self._world.now))
        while client.machine.has_more:
            self._carry_out(client, client.machine.go_on(self._world.now))

    def _on_bytes(self, client: _Client, data: bytes | bytearray) -> None:
        client.rest += data
        while (end := client.rest.find(b"\r\n")) >= 0:
            line, after, mark = client.rest[:end], end + 2, client.rest[:1]
            if mark == b"$" and line != b"$-1":
                after += int(line[1:]) + 2
                line = client.rest[end + 2 : after - 2]
            client.rest = client.rest[after:]
            kind, subject = client.waiting.popleft()
            if mark == b"-":
                self.errors += 1
                self._on_error(client, kind, subject, line)
            elif mark != MARKS[kind]:
                self.wrong.append((RedisKey(client.register.key), f"{kind} was answered by {line!r}"))
            else:
                self.commands += 1
                self._on_answer(client, kind, subject, line)

    def _on_answer(self, client: _Client, kind: str, subject: Any, line: bytes) -> None:
        register = client.register
        if kind == "incr":
            subject.acknowledged += 1
        elif kind == "set":
            register.acknowledge(subject, self._world.now)
        elif not register.may_be(line):
            self.wrong.append((register, f"{register} was read as {line!r}"))

    def _on_error(self, client: _Client, kind: str, subject: Any, line: bytes) -> None:
        is_undone = line.startswith((b"-TRYAGAIN", b"-OOM", b"-NOREPLICAS"))
        is_given_up = kind == "get" and line.startswith(READ_GIVEN_UP)
        if not is_undone and not is_given_up and not line.startswith(b"-INDETERMINATE"):
            self.wrong.append((RedisKey(client.register.key), f"{kind} was refused: {line!r}"))
        if kind == "incr" and is_undone:
            subject.sent -= 1
        elif kind == "set":
            client.register.fail(subject, is_undone=is_undone)

    def on_process_ended(self, member: MemberId) -> None:
        """Break the connections with a member whose process has ended."""
        for client in list(self._clients.values()):
            if client.grid.member == member:
                self._break_off(client)
        self._end_calls(member)

    def _break_off(self, client: _Client) -> None:
        """End the connection of a client, which then does not know what became of its last commands."""
        client.machine.closed()
        client.register.is_certain = client.register.is_certain and not any(kind == "set" for kind, _ in client.waiting)
        del self._clients[client.host.number]

    # --- at rest ---------------------------------------------------------------------------------------------------

    def judge(self, joined: list[Host], now: Millis) -> None:
        evidence, options = self._evidence, self._options
        merges = Merges(options.accuracy_ms, evidence.survival.lost_at) if options.has_sides else None
        evidence.counts["excused losses of Redis clients"] += check_redis(
            self.counters, self.registers, self.wrong, self._value_of, lambda key: self._may_be_lost(key, now), evidence.findings,
            now, merges,
        )  # fmt: skip

    def _may_be_lost(self, key: RedisKey, now: Millis) -> bool:
        """Return whether all replicas that had an acknowledged write of a key can be gone, or have given way to another side's."""
        evidence, options, data = self._evidence, self._options, to_data(key.key)
        if options.has_sides and key.acknowledged_by:
            founders = {evidence.majorities.founder_of(replier) for replier, _ in key.acknowledged_by}
            if not options.lease_ms or len(founders) > 1 or evidence.is_partition_lost(data):
                return True
        return any(
            evidence.may_be_lost(data, replier, at - options.call_timeout_ms, now)
            for replier, at in key.acknowledged_by
        )

    def counts(self) -> dict[str, int]:
        return {"commands of Redis clients": self.commands, "errors that Redis clients were told": self.errors}

    def _value_of(self, key: bytes) -> bytes | None:
        """Return the serialised value that the owner of a key has now."""
        data = to_data(key)
        for host in self._world.hosts:
            if host.has_joined:
                grid = host.running_node.grid
                owned = grid.ownership.owned[partition_of(data, len(grid.ownership.owned))]
                store = owned.replica.maps.get(REDIS) if owned is not None else None
                if store is not None and (value := store.get(data, self._world.now)) is not None:
                    return value
        return None
