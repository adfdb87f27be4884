"""One connection of a Redis client: reads commands, carries them out in their order, and answers in their order.

Commands about one key each are under way side by side, so that a pipeline takes one round trip and not one for each command; but
of one key only one at a time, so each command sees what those before it have done to its key. Any other command waits until
all before it are done, and those behind it wait for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from phalanx.common.ids import Address, Millis
from phalanx.common.map_settings import DictFormat
from phalanx.endpoints.protocol import (
    MAX_STRANGER_BYTES,
    MAX_STRANGER_COMMANDS,
    TURN_BYTES,
    TURN_S,
    Admit,
    Close,
    Effect,
    GridAccess,
    Made,
)
from phalanx.grid.replication.leader import CommandBytes
from phalanx.maps.map_plans import MapPlans
from phalanx.node.local_access import There
from phalanx_protocols.redis_functions import hash_of
from phalanx_protocols.resp.answer_order import AnswerOrder
from phalanx_protocols.resp.answers import Outcome, error_of, evaluated
from phalanx_protocols.resp.command_queue import CommandQueue
from phalanx_protocols.resp.framing import (
    MAX_ARGUMENTS,
    MAX_LINE_BYTES,
    MAX_STRANGER_ARGUMENTS,
    MAX_STRANGER_LINE_BYTES,
    NIL,
    NIL_ARRAY,
    BrokenCommand,
    CommandReader,
    bulk,
    error,
    said,
)

if TYPE_CHECKING:
    from phalanx_protocols.resp.shared import RespShared

SLICE_COMMANDS: Final = 64
"""The most commands of one turn."""
NAMES_HERE: Final = ("get", "set", "incr")
"""The commands that a member carries out from their bytes."""
SOME: Final = 16
"""After such commands, so many are looked at one by one before the next ones are tried."""
SHARED_BYTES: Final = 16 * 1024
"""To decode a longer hash takes long: the commands of a burst share it."""
MOST_HERE: Final = 1024
"""The most commands of one turn that the member carries out from their bytes: they take as long as some dozen others."""
MOST_FAILURES: Final = 3
"""Wrong tokens after which the connection is closed."""
NOT_SERVED_HTTP: Final = (b"POST", b"HOST:")
"""Words with which a page in a browser could reach this port: the connection ends at once."""


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
        self.queue: CommandQueue | None = None
        """The commands of a transaction; None: there is none."""
        self._failures = 0
        self._reader = CommandReader(MAX_STRANGER_BYTES, MAX_STRANGER_ARGUMENTS, MAX_STRANGER_LINE_BYTES)
        self._is_fed = False
        """Whether the reader can hold bytes; False only if it has none."""
        self._received_bytes = 0
        """How many bytes have come before the client was admitted."""
        self._until_s = 0.0
        """When the time of the present turn is over; 0: nothing that can take long was done in it."""
        self._commands: deque[list[bytes]] = deque()
        """Commands that were read and not carried out."""
        self._order = AnswerOrder(self.grid)
        """What is under way, and what is to be sent."""
        self._is_blocked = False
        """Whether the next command waits for answers to earlier ones."""
        self._is_over = False
        self._plans: dict[str, MapPlans] = {}
        self.there = -1
        """The partition whose owner must be asked for the next command, as it was found when this was tried from its bytes; -1: none
        was found."""
        self._decoded: tuple[bytes, dict[Any, Any]] | None = None
        """The long hash that was read last, and its fields; None: no more commands wait."""

    def __repr__(self) -> str:
        return f"RespConnection({self.number}, {self.peer}, {self._order!r})"

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
        return self._order.take()

    def received(self, data: bytes, now: Millis) -> Made:
        order = self._order
        if not self._is_over:
            next_ones = 0
            # `_is_at_rest`, without its call: asked for each command that comes alone.
            is_at_rest = not (order.slots or self._commands) and self.queue is None and self.is_admitted
            if is_at_rest and not order.effects and not self._is_fed:
                self.now = self.used_at = now
                end, count = self._run_local_commands(data, 0, now)
                if count:
                    if end == len(data):
                        answers, order.out_bytes = order.out.pop(), 0
                        return answers
                    data = data[end:]
                next_ones = SOME if count else SLICE_COMMANDS
            if not self.is_admitted:
                self._received_bytes += len(data)
            self._reader.feed(data)
            self._is_fed = True
            if not self._is_blocked:
                self._go_on(now, next_ones)
        return order.take()

    def go_on(self, now: Millis) -> list[Effect]:
        self._go_on(now)
        return self._order.take()

    def answered(self, number: int, outcome: Any, now: Millis) -> list[Effect]:
        self.now = now
        self._order.answered(number, outcome)
        self._is_blocked = False
        return self._order.take()

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
        self._order.close()

    # --- for commands ------------------------------------------------------------------------------------------------------

    def take_there(self) -> There:
        """Return the partition whose owner must be asked for the present command; from then on it is not known."""
        there, self.there = self.there, -1
        return there

    def admit(self) -> None:
        """Let the client do what it likes: it has shown the token, or needs none."""
        if not self.is_admitted:
            self.is_admitted = True
            self._reader.max_bytes = self.grid.max_frame_bytes
            self._reader.max_arguments = MAX_ARGUMENTS
            self._reader.max_line_bytes = MAX_LINE_BYTES
            self._order.effects.append(Admit())

    def failed_to_show(self) -> None:
        """Note a wrong token; close the connection after some."""
        self._failures += 1
        if self._failures >= MOST_FAILURES and not self.is_admitted:
            self.close("it showed a wrong token several times")

    def close(self, reason: str = "") -> None:
        """Close this connection behind the answers that were made."""
        self._order.settle()
        self._order.flush()
        self._order.effects.append(Close(reason))
        self._is_over = True

    def close_after(self, answer: bytes) -> None:
        """Close this connection behind this answer."""
        self._order.answer(answer)
        self.close()

    def close_other(self, number: int) -> None:
        """Close another client's connection."""
        self._order.effects.append(Close("", number))

    @property
    def nil(self) -> bytes:
        """Return the answer that stands for no value."""
        return NIL[self.protocol]

    @property
    def nil_array(self) -> bytes:
        """Return the answer that stands for no array."""
        return NIL_ARRAY[self.protocol]

    def text(self, found: bytes | None) -> bytes:
        """Return an answer of bytes, or of no value."""
        return NIL[self.protocol] if found is None else bulk(found)

    @property
    def has_json_dicts(self) -> bool:
        """Return whether the dicts of the database's map are stored as JSON, as far as this member knows."""
        table = self.grid.table
        return table is not None and table.maps.of(self.map).dicts == DictFormat.JSON

    def plans(self, name: str = "") -> MapPlans:
        """Return the plans of a map; of that of the database in use without a name."""
        name = name or self.map
        found = self._plans.get(name)
        if found is None:
            found = self._plans[name] = MapPlans(name, self.grid, self.grid.clock_s)
        return found

    def hash_of(self, data: bytes) -> dict[Any, Any]:
        """Return the fields of a hash. A long one that commands of a burst read again is decoded once. Raises as `redis_functions.hash_of`."""
        if len(data) < SHARED_BYTES:
            return hash_of(data, json_dicts=self.has_json_dicts)
        if self._decoded is None or self._decoded[0] != data:
            self._decoded = data, hash_of(data, json_dicts=self.has_json_dicts)
        return self._decoded[1]

    def reset(self) -> None:
        """Be as after connecting."""
        self.queue = None
        self.protocol, self.name = 2, b""
        self.select(0)

    def select(self, database: int) -> None:
        """Use another database."""
        self.database, self.map = database, self.server.maps[database]

    @property
    def _is_at_rest(self) -> bool:
        """Return whether the next command of an admitted client can be carried out alone: nothing is before it."""
        return not self._order.slots and not self._commands and self.queue is None and self.is_admitted

    # --- commands ----------------------------------------------------------------------------------------------------------

    def _go_on(self, now: Millis, next_ones: int = 0) -> None:
        """Carry out commands. `next_ones`: so many of the next ones are carried out one by one: others were tried before."""
        self.now = self.used_at = now
        commands, order, clock_s, left = self._commands, self._order, self.grid.clock_s, SLICE_COMMANDS
        self._until_s = 0.0
        try:
            while (
                left > 0
                and order.out_bytes < TURN_BYTES
                and not self._is_over
                and (not self._until_s or clock_s() < self._until_s)
            ):
                if not commands:
                    if not next_ones and self._is_at_rest:
                        count = self._reader.take_by(self._run_local_commands)
                        left -= count // SOME
                        next_ones = SOME if count else SLICE_COMMANDS
                    most = min(left, next_ones or SLICE_COMMANDS)
                    # Those of a client that is not admitted are read one by one: AUTH changes how long the next one can be.
                    commands.extend(self._reader.take(most if self.is_admitted else 1))
                    if not self.is_admitted:
                        self._judge_stranger()
                    next_ones = 0
                    if not commands:
                        if not self._reader.has_unread:
                            break
                        left -= most  # there were commands without words
                        continue
                if not order.slots and self.queue is None and self.is_admitted:
                    done = self._carry_out_at_once(left)
                    left -= done
                    if done:
                        continue
                if not self._carry_out(commands[0]):
                    self._is_blocked = True
                    break
                if not self._is_over:
                    commands.popleft()
                left -= 1
        except BrokenCommand as broken:
            self._order.answer(error(f"ERR Protocol error: {broken}"))
            self.close(f"its bytes are not a command of Redis: {broken}")
        self.there = -1  # it can wait for long
        self._is_fed = not self._reader.is_empty
        if self._decoded is not None and not self.has_more:
            self._decoded = None

    def _judge_stranger(self) -> None:
        """Close the connection of a peer that has sent too much without having shown the token."""
        reader = self._reader
        looked_at = self._received_bytes - reader.unread_bytes
        if looked_at > MAX_STRANGER_BYTES or reader.commands_read > MAX_STRANGER_COMMANDS:
            self._commands.clear()
            bounds = f"{MAX_STRANGER_COMMANDS} commands and {MAX_STRANGER_BYTES} bytes"
            self._order.answer(error(f"ERR a client sends at most {bounds} before it shows the token: AUTH first"))
            self.close(f"it sent more than {bounds}, and has not shown the token")

    def _run_local_commands(self, data: bytes, start: int, now: Millis | None = None) -> tuple[int, int]:
        """Let the member carry out commands from bytes, where nothing is before them. Return where the next one begins, and how many
        were done. `now`: None if time has passed since it was read."""
        order, local = self._order, self.grid.local
        commands = CommandBytes(data, start, MOST_HERE, TURN_BYTES - order.out_bytes, NIL[self.protocol])
        done = local.carry_out(self.map, commands, local.now() if now is None else now)
        if done is None:
            return start, 0
        end, answers, gets, sets, increments, last, self.there = done
        if end == start:
            return start, 0
        count = gets + sets + increments
        order.out.append(answers)
        order.out_bytes += len(answers)
        self._reader.commands_read += count
        self.server.commands_done += count
        self.last_command = NAMES_HERE[last]
        return end, count

    def _carry_out_at_once(self, most: int) -> int:
        """Carry out commands while each has its answer at once: most do, where nobody else has to know. Return how many.

        This is `_carry_out` for a connection on which nothing is under way.
        """
        commands, known, out, slots = self._commands, self.server.commands, self._order.out, self._order.slots
        done = size = 0
        while commands and done < most and not slots and size < TURN_BYTES:
            args = commands[0]
            command = known.get(args[0])
            if command is None or command.is_outside_transactions:
                break
            arity = command.arity
            if len(args) != arity if arity > 0 else len(args) < -arity:
                break
            if not command.is_short:
                now_s = self.grid.clock_s()
                if not self._until_s:
                    self._until_s = now_s + TURN_S
                elif now_s >= self._until_s:
                    break
            commands.popleft()
            done += 1
            try:
                outcome = command.handle(self, args)
            except Exception as failure:
                outcome = error_of(self.grid, command.name, failure)
            self.last_command = command.name
            if type(outcome) is bytes:
                size += len(outcome)
                out.append(outcome)
            else:
                self._order.begin(outcome, command.name)
        self.server.commands_done += done
        self._order.out_bytes += size
        return done

    def _carry_out(self, args: list[bytes]) -> bool:
        """Carry out a command. Return False if it must wait until others are done."""
        server = self.server
        command = server.commands.get(args[0]) or server.commands.get(args[0].upper())
        if command is None:
            if args[0].upper() in NOT_SERVED_HTTP:
                self.close("it sends HTTP: a page in a browser can be trying to reach this port")
                return True
            self._break_queue()
            self._order.answer(error(f"ERR unknown command '{said(args[0])}', with args beginning with: "
                               f"{' '.join(repr(said(word)) for word in args[1:4])}"))  # fmt: skip
            return True
        arity, count = command.arity, len(args)
        if count != arity if arity > 0 else count < -arity:
            self._break_queue()
            self._order.answer(error(f"ERR wrong number of arguments for '{command.name}' command"))
            return True
        if not self.is_admitted and not command.is_for_strangers:
            self._order.answer(error("NOAUTH Authentication required."))
            return True
        if self.queue is not None and not command.is_outside_transactions:
            self._order.answer(self.queue.add(command, args))
            return True
        if self._order.slots and not self._order.may_begin(command, args):
            return False
        if not self._until_s and not command.is_short:
            self._until_s = self.grid.clock_s() + TURN_S
        server.commands_done += 1
        self.last_command = command.name
        self._order.begin(evaluated(self.grid, command.name, command.handle, self, args), command.name)
        return True

    def _break_queue(self) -> None:
        if self.queue is not None:
            self.queue.is_broken = True


Handler = Callable[[RespConnection, list[bytes]], Outcome]
"""What carries a command out, given the connection and the words of the command."""
