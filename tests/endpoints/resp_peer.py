"""A grid that answers late, for the machine of one RESP connection in a test's hands."""

from __future__ import annotations

from typing import Any

from phalanx.codec.hashing import partition_of, scan_position
from phalanx.common.errors import ErrorCode
from phalanx.common.ids import MemberId
from phalanx.common.map_plan import MapPlan
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.endpoints.protocol import (
    Close,
    Credentials,
    Effect,
    Perform,
    SendBytes,
    SendRequest,
    effects_of,
)
from phalanx.grid.serving.update_results import Effect as Became
from phalanx.grid.serving.update_results import UpdateRefused
from phalanx.grid.serving.updates import BUILT_IN, apply_function
from phalanx.maps.call_plans import CallOwners, FindTable, RefreshTable
from phalanx.node.local_access import LocalAccess
from phalanx.wire import messages as m
from phalanx_protocols.resp.connection import RespConnection
from phalanx_protocols.resp.server import RespServer

MEMBER = MemberId("127.0.0.1:1/x")


def table_of(count: int) -> PartitionTable:
    """Return a table of so many partitions, all of which one member owns."""
    return PartitionTable((MEMBER,), ((0,),) * count, (1,) * count, count, (0,) * count, MapPlan())


TABLE = table_of(7)


class LateGrid:
    """Entries of one map that are never here: each must be asked for, and is answered when the test says so."""

    call_timeout_s = 30.0
    max_frame_bytes = max_answer_bytes = 64 * 1024 * 1024
    open_from = 0
    partition_count = 7
    member: Any = MEMBER
    view: MembersView | None = None
    table: PartitionTable | None = None

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}
        self.functions = BUILT_IN
        self.tells_partitions = True
        """Whether owners tell which partitions have entries."""
        self.moved: list[int] = []
        """Partitions for which the next scan is refused."""
        self.failures: list[tuple[str, Exception]] = []
        self._last = 0
        self.local = LocalAccess(lambda: 0, lambda: self.partition_count)

    def next_id(self) -> int:
        self._last += 1
        return self._last

    def clock_s(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return 1_000_000

    def draw(self, below: int) -> int:
        return below - 1

    def failed(self, what: str, error: Exception) -> None:
        self.failures.append((what, error))

    def keys_in(self, partition: int) -> list[bytes]:
        """Return the keys of a partition in scan order."""
        keys = [key for key in self.entries if partition_of(key, self.partition_count) == partition]
        return sorted(keys, key=lambda key: (scan_position(key), key))

    def page(self, request: m.ScanPartition) -> m.PageReply:
        """Return a page, as `MapStore.page` makes it."""
        after = (scan_position(request.after_key), request.after_key) if request.after_key else (-1, b"")
        left = [key for key in self.keys_in(request.partition) if (scan_position(key), key) > after]
        size, count = 0, 0
        while count < len(left) and (not count or size < request.max_bytes):
            size += len(left[count]) + len(self.entries[left[count]])
            count += 1
        some, is_cut = left[:count], count < len(left)
        return m.PageReply(request.id, some, [self.entries[key] for key in some], is_cut, some[-1] if is_cut else b"")

    def reply_to(self, request: Any) -> Any:
        """Serve a request, as its owner would."""
        entries = self.entries
        match request:
            case m.Get(id=number, key=key):
                return m.ValueReply(number, entries.get(key))
            case m.SizeOf(id=number, partitions=partitions):
                sizes = {partition: len(self.keys_in(partition)) for partition in partitions}
                filled = tuple((partition, size) for partition, size in sizes.items() if size)
                return m.CountReply(
                    number, sum(sizes.values()), filled if request.by_partition and self.tells_partitions else ()
                )
            case m.ScanPartition(id=number, partition=partition):
                if partition in self.moved:
                    self.moved.remove(partition)
                    return m.ErrorReply(number, ErrorCode.NOT_OWNER, "it has moved")
                return self.page(request)
            case m.GetAll(id=number, keys=keys):
                return m.ValuesReply(number, [entries.get(key) for key in keys])
            case m.Put(id=number, key=key, value=value):
                entries[key] = value
                return m.DoneReply(number)
            case m.Remove(id=number, key=key):
                return m.ValueReply(number, entries.pop(key, None))
            case m.UpdateValue(id=number, key=key, function=function, arguments=arguments):
                try:
                    made = apply_function(self.functions, function, entries.get(key), arguments)
                except UpdateRefused as refused:
                    return m.ErrorReply(number, ErrorCode.INVALID, str(refused))
                if isinstance(made.then, bytes):
                    entries[key] = made.then
                elif made.then is Became.REMOVED:
                    del entries[key]
                return m.ValueReply(number, made.result)
        raise AssertionError(f"no test asks for {request}")


class Peer:
    """A client whose member does nothing until it is told to."""

    def __init__(self, credentials: Credentials | None = None) -> None:
        self.grid = LateGrid()
        self.server = RespServer(self.grid, credentials, ("redis0", "redis1"))
        self.machine: RespConnection = self.server.connect(1, "127.0.0.1:9", "127.0.0.1:1", 0)  # type: ignore[arg-type]
        self.asked: list[SendRequest] = []
        self.table = TABLE
        self.planned: list[Perform] = []
        """The steps of plans that are to be carried out."""
        self.steps: list[Any] = []
        """The steps of plans that were carried out."""
        self.requests: list[Any] = []
        """The requests of these."""
        self.told = b""
        self.closed: str | None = None
        self._take(self.machine.opened(0))

    def _take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendBytes):
                self.told += effect.data
            elif isinstance(effect, SendRequest):
                self.asked.append(effect)
            elif isinstance(effect, Perform):
                self.planned.append(effect)
            elif isinstance(effect, Close):
                self.closed = effect.reason

    def send(self, data: bytes) -> None:
        """Send bytes, and let the machine go on for as long as it can."""
        self._take(effects_of(self.machine.received(data, 0)))
        while self.machine.has_more:
            self._take(self.machine.go_on(0))

    def answer(self, place: int = 0) -> None:
        """Answer one of the requests under way."""
        ask = self.asked.pop(place)
        self._answered(ask.number, self.grid.reply_to(ask.request))

    def perform(self) -> None:
        """Carry out the step of a plan that is under way."""
        performed = self.planned.pop(0)
        step = performed.step
        self.steps.append(step)
        outcome: Any = self.table if isinstance(step, FindTable | RefreshTable) else None
        if isinstance(step, CallOwners):
            self.requests += [request for _, request in step.requests]
            outcome = [self.grid.reply_to(request) for _, request in step.requests]
        self._answered(performed.number, outcome)

    def _answered(self, number: int, outcome: Any) -> None:
        self._take(self.machine.answered(number, outcome, 0))
        while self.machine.has_more:
            self._take(self.machine.go_on(0))

    def answer_all(self) -> None:
        """Answer all that is under way, and what follows from it; the newest first."""
        while self.asked or self.planned:
            if self.asked:
                self.answer(-1)
            else:
                self.perform()

    def ask(self, data: bytes) -> bytes:
        """Send bytes, answer all, and return what the client is told."""
        self.send(data)
        self.answer_all()
        told, self.told = self.told, b""
        return told
