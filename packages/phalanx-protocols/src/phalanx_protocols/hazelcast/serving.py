"""What handlers of requests are given: the connection, as far as they use it, and the shapes of handlers themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from phalanx.common.ids import MemberId, Millis
from phalanx.endpoints.protocol import GridAccess
from phalanx.maps.call_plans import CallPlan
from phalanx.maps.map_plans import MapPlans
from phalanx.wire.messages import PageReply
from phalanx_protocols.hazelcast.fields import Fields

Take: TypeAlias = Callable[[int, int, Any], bytes | None]
"""Makes the answer to a request, of its type, its number and an outcome. Returns None if it comes still later."""


class Connection(Protocol):
    """One connection of a client that has shown who it is."""

    grid: GridAccess
    number: int
    """Names the connection at this member."""
    now: Millis
    """The time of the present input."""

    @property
    def next_id(self) -> Callable[[], int]:
        """Return a function that returns the number of the next request to an owner."""

    def holder(self, thread: int) -> str:
        """Return the name by which a thread of this client holds locks, at every member."""

    def plans(self, name: str) -> MapPlans:
        """Return the plans of a map."""

    def ask(
        self, key: bytes, request: Any, kind: int, number: int, take: Take, *, is_waiting: bool = False
    ) -> bytes | None:
        """Send a request to the owner of a key. `take` makes the answer of its reply. Return None: it comes later.

        `is_waiting`: it is answered when another client does something.
        """

    def ask_partition(self, partition: int, request: Any, kind: int, number: int, take: Take) -> bytes | None:
        """Send a request to the owner of a partition."""

    def ask_member(self, member: MemberId, request: Any, kind: int, number: int, take: Take) -> bytes | None:
        """Send a request to one member."""

    def perform(self, plan: CallPlan[Any], kind: int, number: int, take: Take, held: int = ...) -> bytes | None:
        """Carry out a plan. `take` makes the answer of its result. `held`: how many bytes it holds meanwhile, about."""

    def stream(self, name: str, kind: int, number: int, tell: Callable[[PageReply], bytes]) -> bytes | None:
        """Answer with what `tell` makes of each page of a map. Return None: the answer comes later."""

    def watch_cluster(self, number: int) -> None:
        """Tell the client of members and partitions under this number, at once and at every change."""


Handler: TypeAlias = Callable[[Any, int, int, Fields], bytes | None]
"""Serves a request: on a connection, its type, its number and its fields. Returns the answer; None: it comes later. Raises `RefusedCall`,
`BadFrame`, and the errors of the grid."""
