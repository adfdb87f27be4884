"""A member with all partitions, in this process and without sockets, as an accepted connection and an endpoint use it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from hostile.fuzzing.target import MIB, Turns, Wrong
from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_data
from phalanx.common.clock import STAMP_BYTES
from phalanx.common.ids import ClientId
from phalanx.endpoints.protocol import Close, EndpointMachine, Perform, SendBytes, SendRequest, effects_of
from phalanx.machine.effects import Answer, Finished, Send
from phalanx.machine.inputs import Call, Input, Received, TimePassed
from phalanx.maps.call_plans import CallOwners, Pause, Step
from phalanx.runtime.endpoints.endpoint_grid import MemberGrid, ReplyTo
from phalanx.runtime.local.embedded import EmbeddedCaller
from phalanx.runtime.settings.config import Config
from support.harness import Cluster

PARTITIONS = 7
MAX_FRAME_BYTES = 8 * MIB
MAPS = ("redis0", "m")
MANY_MAP = "redis1"
CLIENT = ClientId("client/fuzz")
ENTRIES: dict[object, object] = {
    b"n": b"41", b"t": b"text", b"f": b"1.5", b"h": {"f": b"1", "g": b"2", "n": 7, "l": [1, 2]}, b"big": b"x" * MIB,
    b"bighash": {"f": b"x" * MIB, "g": b"1"}, b"wide": {f"field:{number}": b"v" for number in range(30_000)},
    b"long": {"a" * 60_000 + str(number): b"v" for number in range(10)},
    "k": 1, "s": "text", "l": [1, 2, 3], "d": {"a": 1, "f": {"a": [1]}}, "x": 1.5,
}  # fmt: skip
MANY = 3_000
"""Keys of `MANY_MAP`, for what goes through all."""
CHUNK_BYTES = 256 * 1024
"""What one read of a socket brings at most."""
MOST_STEPS = 20_000


def _stored(entries: dict[Any, Any]) -> list[tuple[int, bytes, bytes]]:
    datas = [(to_data(key), bytes(STAMP_BYTES) + to_data(value)) for key, value in entries.items()]
    return [(partition_of(key, PARTITIONS), key, value) for key, value in datas]


class HeldMember:
    """The member. `turns` measures each input of its node, and each of a machine."""

    def __init__(self) -> None:
        self.cluster = Cluster("A", partition_count=PARTITIONS, backup_count=0, max_value_bytes=2 * MIB)
        self.cluster.assign()
        self.node = self.cluster.nodes["A"]
        self.now = self.cluster.now
        self.turns = Turns()
        self.caller = asyncio.run(self._caller())
        self.caller.attach(self.node)
        self.grid = MemberGrid(self.caller, MAX_FRAME_BYTES, MAX_FRAME_BYTES)
        self.replies: deque[Any] = deque()
        """What the node has sent to clients."""
        self._changes = -1
        self._entries = _stored(ENTRIES)
        self._many_entries = _stored(
            {(b"key:%d" if number % 100 else b"a" * 20_000 + b"%d") % number: b"v" for number in range(MANY)}
        )
        self._many: dict[Any, dict[bytes, bytes]] = {}
        """Partition to what it holds of `MANY_MAP`."""

    async def _caller(self) -> EmbeddedCaller:
        return EmbeddedCaller(Config(), self.feed, lambda: self.now, self._fail, lambda: None)

    def _fail(self, error: BaseException) -> None:
        raise Wrong("the member ends") from error

    def begin(self, turns: Turns) -> None:
        """Make the entries as they were, for the next input."""
        self.turns = turns
        self.replies.clear()
        owned = [each for each in self.node.grid.ownership.owned if each is not None]
        if self._count() == self._changes:
            return
        for each in owned:
            maps = each.replica.maps
            for name in list(maps):
                if name != MANY_MAP or self._many.get(each) != maps[name].entries:
                    del maps[name]
        for name, entries in ((MANY_MAP, self._many_entries), *((name, self._entries) for name in MAPS)):
            if all(name in each.replica.maps for each in owned):
                continue
            for each in owned:
                each.replica.maps.pop(name, None)
            for partition, key, value in entries:
                owned[partition].replica.map(name).put(key, value, 0, self.now)
        if not self._many:
            self._many = {each: dict(each.replica.maps[MANY_MAP].entries) for each in owned}
        self._changes = self._count()

    # --- inputs of the node --------------------------------------------------------------------------------------------

    def feed(self, event: Input) -> None:
        """Give the node an input, and carry out what it wants."""
        self._carry_out(self.node.handle(event, self.now))

    def _carry_out(self, effects: list[Any]) -> None:
        for effect in effects:
            if type(effect) is Answer:
                self.caller.answered(effect.reply)
            elif type(effect) is Send:
                self.replies.append(effect.message)
            elif type(effect) is Finished:
                raise Wrong(f"the member ends: {effect}")

    def hear(self, message: Any) -> None:
        """Take one message of a client as one turn, and go on until nothing is due."""
        self.turns.run(self.feed, Received(CLIENT, message))
        self.pass_time()

    def pass_time(self) -> None:
        """Let the node go on with what it does in turns."""
        for _ in range(MOST_STEPS):
            due = self.node.next_deadline()
            if due is None or due > self.now:
                return
            self.turns.run(self.feed, TimePassed())
        raise Wrong("the node has something due for ever")

    # --- machines of endpoints -----------------------------------------------------------------------------------------

    def perform(self, step: Step) -> Any:
        """Carry out a step of a plan; return its outcome."""
        if isinstance(step, CallOwners):
            answers: dict[int, Any] = {}

            def ask_all() -> None:
                for partition, request in step.requests:
                    self.caller.ask(
                        Call(partition, request), ReplyTo(lambda reply: answers.setdefault(reply.id, reply))
                    )

            self.turns.run(ask_all)
            self.pass_time()
            return [answers[request.id] for _, request in step.requests if request.id in answers]
        if isinstance(step, Pause):
            self.now += int(step.seconds * 1000) + 1
            self.pass_time()
            return None
        return self.node.installed_table.table

    def close(self) -> None:
        """Check the state that an input has left, if it has changed anything."""
        if self._count() != self._changes:
            self.node.validate()

    def _count(self) -> int:
        return sum(each.replica.seq for each in self.node.grid.ownership.owned if each is not None)


class Conversation:
    """The bytes of one client, given to the machine of an endpoint as the driver does it."""

    def __init__(self, member: HeldMember, machine: EndpointMachine) -> None:
        self.member, self.machine = member, machine
        self.told_bytes = 0
        self.is_closed = False
        self._waiting: deque[tuple[int, Any]] = deque()
        """Numbers of what the machine has asked for, and the answers."""
        self._steps = 0
        self._carry_out(machine.opened(member.now))

    def send(self, data: bytes) -> None:
        """Give the machine bytes, and let it go on until it rests."""
        for at in range(0, len(data), CHUNK_BYTES):
            piece = data[at : at + CHUNK_BYTES]
            self._turn(self._receive, piece)
            self.go_on()
            if self.is_closed:
                return

    def send_all(self, pieces: list[bytes]) -> None:
        """Send pieces one after the other, while the connection is open."""
        for piece in pieces:
            if not self.is_closed:
                self.send(piece)

    def go_on(self) -> None:
        while (self._waiting or self.machine.has_more) and not self.is_closed:
            self._steps += 1
            if self._steps > MOST_STEPS:
                return  # a long pipeline: no turn of it was too long
            if self._waiting:
                number, outcome = self._waiting.popleft()
                self._turn(self.machine.answered, number, outcome, self.member.now)
            else:
                self._turn(self.machine.go_on, self.member.now)

    def _receive(self, data: bytes) -> list[Any]:
        return effects_of(self.machine.received(data, self.member.now))

    def _turn(self, step: Callable[..., list[Any]], *arguments: Any) -> None:
        self._carry_out(self.member.turns.run(step, *arguments))

    def _carry_out(self, effects: list[Any]) -> None:
        for effect in effects:
            if type(effect) is SendBytes:
                self.told_bytes += len(effect.data)
            elif type(effect) is SendRequest:
                self._ask(effect)
            elif type(effect) is Perform:
                outcome = self.member.perform(effect.step)
                wanted = len(effect.step.requests) if isinstance(effect.step, CallOwners) else None
                if wanted is None or wanted == len(outcome):  # else an answer is to come later: it waits for a lock
                    self._waiting.append((effect.number, outcome))
            elif type(effect) is Close and not effect.connection:
                self.is_closed = True

    def _ask(self, effect: SendRequest) -> None:
        number = effect.number
        take = ReplyTo(lambda reply: self._waiting.append((number, reply)))
        self.member.turns.run(self.member.caller.ask, Call(effect.partition, effect.request, effect.to), take)
        self.member.pass_time()

    def end(self) -> None:
        """The client goes away."""
        self.machine.closed()
        self.member.close()
