"""One connection of a Redis client: reads commands, carries them out in their order, and answers in their order.

Commands about one key each are under way side by side, so that a pipeline takes one round trip and not one for each command; but
of one key only one at a time, so each command sees what those before it have done to its key. Any other command waits until
all before it are done, and those behind it wait for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from phalanx.codec.values import to_data
from phalanx.common.errors import PhalanxError
from phalanx.common.ids import Address, Millis
from phalanx.endpoints.protocol import (
    LARGE_REPLY_BYTES,
    MAX_STRANGER_BYTES,
    TURN_BYTES,
    Admit,
    Close,
    Effect,
    GridAccess,
    Perform,
    SendBytes,
    SendRequest,
)
from phalanx.endpoints.resp.answers import KeyCall, Outcome, refusal_of_plan
from phalanx.endpoints.resp.framing import (
    MAX_ARGUMENTS,
    MAX_STRANGER_ARGUMENTS,
    NIL,
    NIL_ARRAY,
    BrokenCommand,
    CommandReader,
    bulk,
    error,
    said,
)
from phalanx.grid.serving.update_results import UpdateRefused
from phalanx.maps.call_plans import CallPlan
from phalanx.maps.map_plans import MapPlans

if TYPE_CHECKING:
    from phalanx.endpoints.resp.shared import RespShared
    from phalanx.endpoints.resp.table import Command

SLICE_COMMANDS: Final = 64
"""The most commands of one turn."""
MAX_UNDER_WAY: Final = 256
"""The most requests that are under way for one connection."""
MAX_QUEUED_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the commands of one transaction."""
MAX_QUEUED: Final = 100_000
"""The commands of one transaction."""
MOST_FAILURES: Final = 3
"""Wrong tokens after which the connection is closed."""
NOT_SERVED_HTTP: Final = (b"POST", b"HOST:")
"""Words with which a page in a browser could reach this port: the connection ends at once."""


class Slot:
    """The place of one answer that is still to come."""

    __slots__ = ("answer", "call")

    def __init__(self, answer: bytes | None, call: KeyCall | None = None) -> None:
        self.answer = answer
        self.call = call


class RespConnection:
    """The machine of one connection (`endpoints.protocol.EndpointMachine`)."""

    def __init__(self, server: RespShared, number: int, peer: str, local: Address, now: Millis) -> None:
        self.server = server
        self.grid: GridAccess = server.grid
        self.number: int = number
        self.peer, self.local = peer, local
        self.opened_at = self.used_at = now
        self.now = now
        self.protocol = 2
        self.name: bytes = b""
        self.library: dict[bytes, bytes] = {}
        """What the client says of its library: its name and version."""
        self.last_command = ""
        self.is_admitted = False
        self.database = 0
        self.map: str = server.maps[0]
        self.queue: list[list[bytes]] | None = None
        """The commands of a transaction; None: there is none."""
        self.queue_is_broken = False
        self._queued_bytes = 0
        self._failures = 0
        self._reader = CommandReader(MAX_STRANGER_BYTES, MAX_STRANGER_ARGUMENTS)
        self._commands: deque[list[bytes]] = deque()
        """Commands that were read and not carried out."""
        self._slots: deque[Slot] = deque()
        """The answers that are to come, in their order; the first one has not come."""
        self._calls: dict[int, Slot] = {}
        self._busy: set[bytes] = set()
        """The keys about which something is under way."""
        self._plan: tuple[int, CallPlan[bytes], Slot] | None = None
        """A plan under way: nothing else is."""
        self._most = 16
        """How many requests may be under way now."""
        self._number = 0
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._effects: list[Effect] = []
        self._is_blocked = False
        """Whether the next command waits for answers to earlier ones."""
        self._is_over = False
        self._plans: dict[str, MapPlans] = {}

    def __repr__(self) -> str:
        return (
            f"RespConnection({self.number}, {self.peer}, under way={len(self._calls)}, plan={self._plan is not None})"
        )

    # --- the contract ------------------------------------------------------------------------------------------------------

    @property
    def has_more(self) -> bool:
        return not self._is_over and not self._is_blocked and bool(self._commands or self._has_unread)

    @property
    def _has_unread(self) -> bool:
        return self._reader.has_unread

    @property
    def held_bytes(self) -> int:
        return self._reader.unread_bytes if self._commands or self._has_unread else 0

    @property
    def commands_read(self) -> int:
        return self._reader.commands_read

    @property
    def part_length(self) -> int:
        return self._reader.part_length if not self._is_blocked else 0

    @property
    def part_bytes(self) -> int:
        return self._reader.part_bytes

    def opened(self, now: Millis) -> list[Effect]:
        self.server.clients[self.number] = self
        if self.server.credentials is None:
            self.admit()
        return self._take()

    def received(self, data: bytes, now: Millis) -> list[Effect]:
        if not self._is_over:
            self._reader.feed(data)
            if not self._is_blocked:
                self._go_on(now)
        return self._take()

    def go_on(self, now: Millis) -> list[Effect]:
        self._go_on(now)
        return self._take()

    def answered(self, number: int, outcome: Any, now: Millis) -> list[Effect]:
        self.now = now
        if self._plan is not None and self._plan[0] == number:
            _, plan, slot = self._plan
            self._plan = None
            self._advance(plan, slot, outcome)
        elif (slot_or_none := self._calls.pop(number, None)) is not None:
            call = slot_or_none.call
            if call is not None:
                self._busy.discard(call.key)
                slot_or_none.answer = answer = call.answer(outcome)
                self._note_size(len(answer))
        self._settle()
        self._is_blocked = False
        return self._take()

    def cluster_changed(self, now: Millis) -> list[Effect]:
        return []

    def next_deadline(self) -> Millis | None:
        return None

    def on_time(self, now: Millis) -> list[Effect]:
        return []

    def closed(self) -> None:
        self.server.clients.pop(self.number, None)
        self._is_over = True
        self._commands.clear()
        if self._plan is not None:
            self._plan[1].close()
            self._plan = None

    # --- for commands ------------------------------------------------------------------------------------------------------

    def admit(self) -> None:
        """Let the client do what it likes: it has shown the token, or needs none."""
        if not self.is_admitted:
            self.is_admitted = True
            self._reader.max_bytes = self.grid.max_frame_bytes
            self._reader.max_arguments = MAX_ARGUMENTS
            self._effects.append(Admit())

    def failed_to_show(self) -> None:
        """Note a wrong token; close the connection after some."""
        self._failures += 1
        if self._failures >= MOST_FAILURES and not self.is_admitted:
            self.close("it showed a wrong token several times")

    def close(self, reason: str = "") -> None:
        """Close this connection behind the answers that were made."""
        self._settle()
        self._flush()
        self._effects.append(Close(reason))
        self._is_over = True

    def close_after(self, answer: bytes) -> None:
        """Close this connection behind this answer."""
        self._answer(answer)
        self.close()

    def close_other(self, number: int) -> None:
        """Close another client's connection."""
        self._effects.append(Close("", number))

    @property
    def nil(self) -> bytes:
        """Return how no value is told."""
        return NIL[self.protocol]

    @property
    def nil_array(self) -> bytes:
        """Return how no array is told."""
        return NIL_ARRAY[self.protocol]

    def text(self, found: bytes | None) -> bytes:
        """Return an answer of bytes, or of no value."""
        return NIL[self.protocol] if found is None else bulk(found)

    def plans(self, name: str = "") -> MapPlans:
        """Return the plans of a map; of that of the database in use without a name."""
        name = name or self.map
        found = self._plans.get(name)
        if found is None:
            found = self._plans[name] = MapPlans(name, self.grid, self.grid.clock_s)
        return found

    def reset(self) -> None:
        """Be as after connecting."""
        self.queue, self.queue_is_broken = None, False
        self.protocol, self.name = 2, b""
        self.select(0)

    def select(self, database: int) -> None:
        """Use another database."""
        self.database, self.map = database, self.server.maps[database]

    # --- commands ----------------------------------------------------------------------------------------------------------

    def _go_on(self, now: Millis) -> None:
        self.now = self.used_at = now
        commands, left = self._commands, SLICE_COMMANDS
        try:
            while left > 0 and self._out_bytes < TURN_BYTES and not self._is_over:
                if not commands:
                    commands.extend(self._reader.take(min(left, SLICE_COMMANDS)))
                    if not commands:
                        break
                if not self._slots and self.queue is None and self.is_admitted:
                    left -= self._carry_out_at_once(left)
                    if not commands or left <= 0 or self._is_over:
                        continue
                if not self._carry_out(commands[0]):
                    self._is_blocked = True
                    break
                if not self._is_over:
                    commands.popleft()
                left -= 1
        except BrokenCommand as broken:
            self._answer(error(f"ERR Protocol error: {broken}"))
            self.close(f"its bytes are no command of Redis: {broken}")

    def _carry_out_at_once(self, most: int) -> int:
        """Carry out commands while each has its answer at once: most do, where nobody else has to know. Return how many.

        This is `_carry_out` for a connection on which nothing is under way.
        """
        commands, known, out, slots = self._commands, self.server.commands, self._out, self._slots
        done = size = 0
        while commands and done < most and not slots and size < TURN_BYTES:
            args = commands[0]
            command = known.get(args[0])
            if command is None or command.is_outside_transactions:
                break
            arity = command.arity
            if len(args) != arity if arity > 0 else len(args) < -arity:
                break
            commands.popleft()
            done += 1
            try:
                outcome = command.handle(self, args)
            except UpdateRefused as refused:
                outcome = error(str(refused))
            except PhalanxError as failure:
                outcome = refusal_of_plan(failure)
            self.last_command = command.name
            if type(outcome) is bytes:
                size += len(outcome)
                out.append(outcome)
            else:
                self._begin(outcome)
        self.server.commands_done += done
        self._out_bytes += size
        return done

    def _carry_out(self, args: list[bytes]) -> bool:
        """Carry out a command. Return False if it must wait until others are done."""
        server = self.server
        command = server.commands.get(args[0]) or server.commands.get(args[0].upper())
        if command is None:
            if args[0].upper() in NOT_SERVED_HTTP:
                self.close("it sends HTTP: a page in a browser may try to reach this port")
                return True
            self.queue_is_broken = True
            self._answer(error(f"ERR unknown command '{said(args[0])}', with args beginning with: "
                               f"{' '.join(repr(said(word)) for word in args[1:4])}"))  # fmt: skip
            return True
        arity, count = command.arity, len(args)
        if count != arity if arity > 0 else count < -arity:
            self.queue_is_broken = True
            self._answer(error(f"ERR wrong number of arguments for '{command.name}' command"))
            return True
        if not self.is_admitted and not command.is_for_strangers:
            self._answer(error("NOAUTH Authentication required."))
            return True
        if self.queue is not None and not command.is_outside_transactions:
            self._answer(self._enqueue(self.queue, args))
            return True
        if self._slots and not self._may_begin(command, args):
            return False
        server.commands_done += 1
        self.last_command = command.name
        self._begin(self._outcome(command, args))
        return True

    def _outcome(self, command: Command, args: list[bytes]) -> Outcome:
        try:
            outcome: Outcome = command.handle(self, args)
            return outcome
        except UpdateRefused as refused:
            return error(str(refused))
        except PhalanxError as failure:
            return refusal_of_plan(failure)

    def _may_begin(self, command: Command, args: list[bytes]) -> bool:
        """Return whether a command may begin while others are under way."""
        if self._plan is not None or len(self._calls) >= self._most:
            return False
        if command.is_of_connection:
            return True
        return command.is_of_one_key(args) and to_data(args[command.first_key]) not in self._busy

    def _enqueue(self, queue: list[list[bytes]], args: list[bytes]) -> bytes:
        self._queued_bytes += sum(map(len, args))
        if len(queue) >= MAX_QUEUED or self._queued_bytes > MAX_QUEUED_BYTES:
            self.queue_is_broken = True
            queue.clear()
            return error(f"ERR a transaction has at most {MAX_QUEUED} commands and {MAX_QUEUED_BYTES} bytes")
        queue.append(args)
        return b"+QUEUED\r\n"

    def begin_queue(self) -> None:
        """Keep the commands that follow for a transaction."""
        self.queue, self.queue_is_broken, self._queued_bytes = [], False, 0

    def _begin(self, outcome: Outcome) -> None:
        if isinstance(outcome, bytes):
            if outcome:
                self._answer(outcome)
        elif isinstance(outcome, KeyCall):
            slot = Slot(None, outcome)
            self._slots.append(slot)
            self._busy.add(outcome.key)
            self._number += 1
            self._calls[self._number] = slot
            self._effects.append(
                SendRequest(self._number, outcome.partition(self.grid.partition_count), outcome.request)
            )
        else:
            slot = Slot(None)
            self._slots.append(slot)
            self._advance(outcome, slot, None)

    def _advance(self, plan: CallPlan[bytes], slot: Slot, outcome: Any) -> None:
        """Go on with a plan until it needs something, or is done."""
        try:
            step = plan.throw(outcome) if isinstance(outcome, PhalanxError) else plan.send(outcome)
        except StopIteration as end:
            slot.answer = end.value
        except UpdateRefused as refused:
            slot.answer = error(str(refused))
        except PhalanxError as failure:
            slot.answer = refusal_of_plan(failure)
        else:
            self._number += 1
            self._plan = self._number, plan, slot
            self._effects.append(Perform(self._number, step))
            return
        self._note_size(len(slot.answer or b""))
        self._settle()

    # --- answers -----------------------------------------------------------------------------------------------------------

    def _answer(self, answer: bytes) -> None:
        if self._slots:
            self._slots.append(Slot(answer))
        else:
            self._out.append(answer)
            self._out_bytes += len(answer)

    def _note_size(self, size: int) -> None:
        """Choose how many requests may be under way: one while answers are long."""
        if size > LARGE_REPLY_BYTES:
            self._most = 1
        elif self._most < MAX_UNDER_WAY:
            self._most *= 2

    def _settle(self) -> None:
        """Send the answers that have come, up to the first that has not."""
        slots = self._slots
        while slots and (answer := slots[0].answer) is not None:
            slots.popleft()
            self._out.append(answer)
            self._out_bytes += len(answer)

    def _flush(self) -> None:
        if self._out:
            self._effects.append(SendBytes(self._out[0] if len(self._out) == 1 else b"".join(self._out)))
            self._out.clear()
            self._out_bytes = 0

    def _take(self) -> list[Effect]:
        if self._out:
            self._flush()
        effects, self._effects = self._effects, []
        return effects


Handler = Callable[[RespConnection, list[bytes]], Outcome]
"""What carries a command out, given the connection and the words of the command."""
