"""Requests that wait until it is decided who owns their partition, or until the owner here can serve it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from phalanx.common.errors import ErrorCode
from phalanx.common.ids import NEVER, Millis, Target
from phalanx.grid.replication.waiting_requests import WaitingRequests, bytes_of
from phalanx.machine.alarms import Alarm
from phalanx.machine.outbox import Outbox
from phalanx.wire.messages import BulkRequest, ErrorReply, KeyRequest

Request = KeyRequest | BulkRequest


class ParkedRequests:
    """The parked requests of each partition, in the order of their arrival."""

    def __init__(self, counted: WaitingRequests, outbox: Outbox) -> None:
        self.counted = counted
        """All requests that wait at this member, these among them."""
        self._out = outbox
        self.waiting: dict[int, list[tuple[Target, Request]]] = {}
        self.released: deque[tuple[Target, Request]] = deque()
        """Requests that wait no longer. They are served as if they came now, some in each turn, before newer requests."""
        self.alarm = Alarm(self)

    def hold(self, caller: Target, request: Request, partition: int) -> None:
        if self.admits(caller, request):
            self.waiting.setdefault(partition, []).append((caller, request))

    def queue(self, caller: Target, request: Request) -> None:
        """Let a request wait behind those that are served next."""
        if self.admits(caller, request):
            self.released.append((caller, request))

    def take(self) -> tuple[Target, Request]:
        """Take the request that is served next."""
        caller, request = self.released.popleft()
        if not self.released:
            self.alarm.set(NEVER)
        self.counted.remove_request(caller, bytes_of(request))
        return caller, request

    def admits(self, caller: Target, request: Request) -> bool:
        """Count a request that is to wait until `take`. If it is one too many, the caller is told to ask again later."""
        size = bytes_of(request)
        self.counted.add_request(caller, size)
        if why := self.counted.turned_away(caller, size):
            self._out.send(caller, ErrorReply(request.id, ErrorCode.NOT_READY, why))
        return not why

    def next_deadline(self) -> Millis | None:
        """Return that more of those that wait no longer are served as soon as possible; None: there are none."""
        return 0 if self.released else None

    def on_time(self, now: Millis) -> None:
        """Do nothing here: the member serves some of them after each input."""

    def __len__(self) -> int:
        return len(self.released) + sum(map(len, self.waiting.values()))

    def most_wanted(self, partitions: Mapping[int, object]) -> int:
        """Return that of these partitions whose requests have waited longest; the first one, if there are no requests.

        `partitions` must not be empty.
        """
        return next((partition for partition in self.waiting if partition in partitions), next(iter(partitions)))

    def release(self, partition: int) -> None:
        self.released += self.waiting.pop(partition, ())
