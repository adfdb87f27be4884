"""The contract of an endpoint: a machine that speaks another system's protocol on one connection of a member.

The driver (`runtime.endpoints.endpoint_connections`, and the simulator's) gives a machine the bytes that arrive and the outcomes of what it
asked for. The machine returns effects: bytes to send, requests to owners, steps of a plan, the end of the connection. It does no
I/O and reads no clock: `now` comes with each input, and never goes backwards. What it may read at once is a `GridAccess`.

The driver keeps these promises:

* Effects are carried out in order, before the next input of any machine. So a request whose number was drawn from `next_id` is
  sent in the order of the numbers.
* Each `SendRequest` and `Perform` gets exactly one `answered`, unless the connection is closed before. It never comes within the call
  that returned the effect.
* After `closed` the machine gets no more inputs.

A machine keeps these:

* One input costs a bounded time, `TURN_S` and one command: what arrives at once and takes longer is held, `has_more` says so, and
  `go_on` continues.
* What it holds is bounded: the driver stops reading while `held_bytes` is above `HELD_BYTES`, and while the peer does not read.
* Before the peer has shown who it is (`Admit`), it looks at no more than `MAX_STRANGER_BYTES` and `MAX_STRANGER_COMMANDS` of it.
* Bytes that break the protocol end in `Close`, with the reason for the log. Whatever is raised while a command is evaluated is the
  answer to this command, and counted (`GridAccess.failed`). It raises nothing; if it does all the same, the driver closes this
  connection alone.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from phalanx.common.ids import Address, MemberId, Millis
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.maps.call_plans import Step
from phalanx.node.local_access import LocalAccess

HELD_BYTES: Final = 64 * 1024
"""The driver reads no more while a machine holds so many bytes of complete commands that wait for their turn."""
MAX_STRANGER_BYTES: Final = 16 * 1024
"""What a machine looks at of a peer that has not shown who it is, and what it holds of it."""
MAX_STRANGER_COMMANDS: Final = 8
"""How many commands such a peer may give: to show who it is takes two or three."""
TURN_S: Final = 0.005
"""A machine ends its turn when it has worked for so long (`GridAccess.clock_s`), after at least one command."""
TURN_BYTES: Final = 1024 * 1024
"""A machine ends its turn when it has made so many bytes of answers: those of one turn are all in memory at once."""
LARGE_REPLY_BYTES: Final = 64 * 1024
"""After a longer answer a machine asks for one thing at a time, until answers are short again."""


class SendBytes(msgspec.Struct, frozen=True, gc=False):
    """Send these bytes to the peer."""

    data: bytes | bytearray


class SendRequest(msgspec.Struct, frozen=True, gc=False):
    """Send a request to the owner of a partition. `answered` gets its one reply, which may be an `ErrorReply`."""

    number: int
    """Names the answer, within the connection."""
    partition: int
    request: Any
    to: MemberId | None = None
    """The member that is asked instead; None: the owner."""


class Perform(msgspec.Struct, frozen=True, gc=False):
    """Carry out a step of a plan (`maps.call_plans`). `answered` gets the outcome, or the exception that it ended with."""

    number: int
    step: Step


class Admit(msgspec.Struct, frozen=True, gc=False):
    """The peer has shown who it is, or need not: it takes a place of a client, and has no time limit any more."""


class Close(msgspec.Struct, frozen=True, gc=False):
    """Close a connection, behind what was written to it."""

    reason: str = ""
    """Why, in one line, if the peer is at fault; empty: it is not, and nothing is logged."""
    connection: int = 0
    """The number of another connection of the same endpoint; 0: this one."""


Effect: TypeAlias = SendBytes | SendRequest | Perform | Admit | Close
Made: TypeAlias = list[Effect] | bytes
"""What bytes of the peer lead to. Bytes stand for one `SendBytes`, and say that the machine is at rest: it has no more to do, holds
nothing, and no command has arrived in part. So the driver needs not ask."""


def effects_of(made: Made) -> list[Effect]:
    """Return what bytes of the peer lead to as effects."""
    return [SendBytes(made)] if type(made) is bytes else made  # type: ignore[return-value]  # types are compared


class GridAccess(Protocol):
    """What of its member a machine may use within an input. Nothing of it waits."""

    local: LocalAccess
    """What is done at once, where it is here."""
    call_timeout_s: float
    """The time limit of a call, for `maps.call_plans.Plans`."""
    max_frame_bytes: int
    """The longest message between members: a command of an endpoint is no longer, either."""
    max_answer_bytes: int
    """What one list of answers has at most (`maps.answer_budget`)."""

    @property
    def open_from(self) -> int:
        """Return the lowest number of a request of this member that may be under way: what writes carry."""

    @property
    def partition_count(self) -> int:
        """Return the partition count of the installed table."""

    @property
    def next_id(self) -> Any:
        """Return a function that returns the number of the next request."""

    @property
    def member(self) -> MemberId:
        """Return the identity of this member."""

    @property
    def view(self) -> MembersView | None:
        """Return the installed list of members; None: this member is in no cluster."""

    @property
    def table(self) -> PartitionTable | None:
        """Return the installed table; None: the partitions are not assigned yet."""

    @property
    def clock_s(self) -> Callable[[], float]:
        """Return a function that returns the seconds of a clock that never goes backwards: for time limits of plans, and of turns."""

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970."""

    def draw(self, below: int) -> int:
        """Return a random number from 0 to `below - 1`."""

    def failed(self, what: str, error: Exception) -> None:
        """Count and log an exception that nobody raised on purpose while a command was evaluated. `what`: the command. The client was
        told, with the class of the error alone: its text can hold what others have stored."""


class EndpointMachine(Protocol):
    """One connection of a peer that speaks the protocol."""

    @property
    def has_more(self) -> bool:
        """Return whether it holds commands with which it can go on now."""

    @property
    def held_bytes(self) -> int:
        """Return how many bytes of commands wait for their turn, or for answers to earlier ones."""

    @property
    def commands_read(self) -> int:
        """Return how many commands have arrived whole."""

    @property
    def part_length(self) -> int:
        """Return the length of the command that has arrived in part, as far as it is known; 0: none has."""

    @property
    def part_bytes(self) -> int:
        """Return how many bytes of it have arrived."""

    def opened(self, now: Millis) -> list[Effect]:
        """Begin: the connection is open, and nothing of it was read."""

    def received(self, data: bytes, now: Millis) -> Made:
        """Take bytes of the peer."""

    def go_on(self, now: Millis) -> list[Effect]:
        """Go on with what is held."""

    def answered(self, number: int, outcome: Any, now: Millis) -> list[Effect]:
        """Take the reply to an `SendRequest`, or the outcome of a `Perform`."""

    def cluster_changed(self, now: Millis) -> list[Effect]:
        """Take note that this member has another view or table than before."""

    def next_deadline(self) -> Millis | None:
        """Return when `on_time` must be called next; the driver may be up to a second late. None: never."""

    def on_time(self, now: Millis) -> list[Effect]:
        """Do what is due."""

    def closed(self) -> None:
        """Forget everything: the connection is closed."""


class Endpoint(Protocol):
    """One protocol at one member: makes the machines of its connections, and holds what they share."""

    def connect(self, number: int, peer: str, local: Address, now: Millis) -> EndpointMachine:
        """Return the machine of a new connection. `number`: names it at this member; `peer`, `local`: the addresses of both
        ends."""


class ProtocolSettings(Protocol):
    """What protocols read of a member's settings (`runtime.config.Config`)."""

    @property
    def cluster(self) -> str: ...
    @property
    def redis_maps(self) -> Sequence[str]: ...
    @property
    def redis_loose_transactions(self) -> bool: ...


class Credentials(msgspec.Struct, frozen=True):
    """What peers show on connecting. Its text shows in no `repr`."""

    password: str
    name: str = ""
    """The name that must come with it; empty: any name, or none."""

    def __repr__(self) -> str:
        return "Credentials(not shown)"

    def are_shown(self, name: str, password: bytes) -> bool:
        """Return whether these are the credentials; takes as long for wrong ones."""
        is_name = not self.name or hmac.compare_digest(self.name.encode(), name.encode("utf-8", "replace"))
        return hmac.compare_digest(self.password.encode(), password) and is_name


def credentials_of(text: str) -> Credentials:
    """Return the credentials of a text: a token, or a name and a password with a colon between them."""
    name, colon, password = text.strip().partition(":")
    return Credentials(password, name) if colon else Credentials(name)


MakeEndpoint: TypeAlias = Callable[[GridAccess, Credentials | None, ProtocolSettings], Endpoint]
"""The function `make_endpoint` of a protocol's module. Credentials: what clients must show; None: nothing."""
