"""Plans of calls that take several requests: which requests, in what order, and what follows from the replies.

A plan is a generator without I/O, clock, thread or event loop. It yields the step that it needs next (`CallOwners`,
`FindTable`, `RefreshTable`, `Pause`), gets the outcome, and returns the result of the call, or raises its error. So the
blocking client (`phalanx.client.blocking.plan_runner`) and the asyncio one (`phalanx.maps.async_plan_runner`) follow the same rules,
and a test can play the cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from phalanx.common.errors import ErrorCode
from phalanx.common.ids import Lost
from phalanx.common.table import PartitionTable
from phalanx.maps.requests import REGROUP, as_for_the_whole, lost_after, raise_error
from phalanx.maps.time_limit import TimeLimit
from phalanx.wire.messages import ErrorReply

REGROUP_PAUSE_S = 0.02
"""How long a plan waits for a newer table when no member has one."""

T = TypeVar("T")
G = TypeVar("G")


class CallOwners(msgspec.Struct, frozen=True):
    """Send these requests to the owners of their partitions at once. The outcome: the replies in the same order."""

    requests: list[tuple[int, Any]]
    """Pairs of a partition and a request to its owner."""
    within_ms: int
    """The time limit of each request; 0: that of any call."""
    lost: Lost = ()
    """The members that were lost under requests in whose place these are (`requests.lost_after`)."""


class FindTable(msgspec.Struct, frozen=True):
    """Find the newest partition table known, and wait for the first one. The outcome: the table."""


class RefreshTable(msgspec.Struct, frozen=True):
    """Ask a member for its table, and wait for a limited time. The outcome: the newest partition table known then."""

    within_s: float


class Pause(msgspec.Struct, frozen=True):
    """Wait for some seconds. The outcome: None."""

    seconds: float


FIND_TABLE = FindTable()

Step: TypeAlias = CallOwners | FindTable | RefreshTable | Pause
CallPlan: TypeAlias = Generator[Step, Any, T]


class RequestNumbers(Protocol):
    """What plans need to know of a client."""

    call_timeout_s: float

    @property
    def next_id(self) -> Callable[[], int]:
        """Return a function that returns the number of the next request."""


class Plans:
    """Makes the plans of one map, or of its journal."""

    def __init__(self, name: str, client: RequestNumbers, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: counts the seconds of time limits."""
        self._name = name
        self._client = client
        self._clock = clock

    def time_limit(self) -> TimeLimit:
        """Return the time limit of a call that begins now."""
        return TimeLimit(self._client.call_timeout_s, self._clock)


class BulkCall:
    """A call that is made in rounds of requests: its time limit, its table, and whether it may have changed something.

    A round is `ask`, then `take_replies`; after a refusal, `find_newer_table` comes before the next one.
    """

    __slots__ = ("_is_write", "_may_be_done", "_what", "limit", "lost", "table")

    def __init__(self, what: str, limit: TimeLimit, *, is_write: bool = False, lost: Lost = ()) -> None:
        """Begin a call. `what`: the operation, for messages. `is_write`: an error must say whether some of the call can be done.

        `lost`: the members that earlier calls, which this one replaces, have lost.
        """
        self.limit = limit
        self.lost = lost
        """The members that were lost in rounds that were refused, one after the other."""
        self.table: PartitionTable
        """The table by which owners are found; the plan that uses this call sets the first one."""
        self._what = what
        self._is_write = is_write
        self._may_be_done = False

    def ask(self, requests: list[tuple[int, Any]]) -> CallOwners:
        """Return the step that sends these requests at the same time, within the remaining time."""
        return CallOwners(requests, self.limit.within_ms, self.lost)

    def take_replies(
        self, groups: Sequence[G], replies: list[Any], take: Callable[[G, Any], None]
    ) -> tuple[list[G], ErrorReply | None]:
        """Pass each group's reply to `take`, which raises errors. Return the refused groups, and why.

        If none was refused, the time limit starts again.
        """
        if self._is_write:
            replies, self._may_be_done = as_for_the_whole(replies, may_be_applied=self._may_be_done)
        self.lost = lost_after(self.lost, replies)
        refused: list[G] = []
        refusal = None
        for group, reply in zip(groups, replies, strict=True):
            if isinstance(reply, ErrorReply) and reply.code in REGROUP:
                refused.append(group)
                refusal = reply
            else:
                take(group, reply)
        if refusal is None:
            self.limit.renew()
        return refused, refusal

    def find_newer_table(self, refusal: ErrorReply) -> CallPlan[None]:
        """Find a newer table than that of the call before another try; pause if there is none.

        Raises the error of the refusal when the time is over.
        """
        if self.limit.is_over:
            code = ErrorCode.INDETERMINATE if self._may_be_done else ErrorCode.UNAVAILABLE
            raise_error(ErrorReply(refusal.id, code, refusal.text), self._what)
        before, self.table = self.table, (yield FIND_TABLE)
        if self.table is before:
            self.table = yield RefreshTable(self.limit.left_s)
        if self.table is before:
            yield Pause(min(REGROUP_PAUSE_S, self.limit.left_s))
            self.table = yield RefreshTable(self.limit.left_s)
