"""One connection of a client: reads its requests, has them served, and writes the answers as they come.

A connection begins with three bytes and an authentication; nothing else is read before. Then requests are served side by side, each
answer names its request. The one thing that comes alone is a large answer: its frames are written page by page as the client reads
them, and until it has ended no other request is begun and other answers wait.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import msgspec

from phalanx.codec.hashing import partition_of
from phalanx.common.errors import PhalanxError
from phalanx.common.ids import MemberId, Millis
from phalanx.endpoints.hazelcast.authentication import Admitted, Denied, admission_of
from phalanx.endpoints.hazelcast.bulk_calls import BULK_CALLS
from phalanx.endpoints.hazelcast.client_calls import CLIENT_CALLS
from phalanx.endpoints.hazelcast.errors import Code, RefusedCall, error_message, refusal_of
from phalanx.endpoints.hazelcast.executions import EXECUTIONS
from phalanx.endpoints.hazelcast.fields import Fields
from phalanx.endpoints.hazelcast.frames import (
    BEGIN_FRAME,
    LAST_END_FRAME,
    MESSAGE_HEAD_BYTES,
    BadFrame,
    FrameMark,
    Message,
    MessageReader,
    answer_head,
)
from phalanx.endpoints.hazelcast.lock_calls import LOCK_CALLS, HeldLocks
from phalanx.endpoints.hazelcast.map_calls import KEY_CALLS
from phalanx.endpoints.hazelcast.names import why_unsupported
from phalanx.endpoints.hazelcast.serving import Handler, Take
from phalanx.endpoints.hazelcast.shared import HazelcastShared
from phalanx.endpoints.hazelcast.views import members_event, partitions_event
from phalanx.endpoints.protocol import (
    MAX_STRANGER_BYTES,
    TURN_BYTES,
    Admit,
    Close,
    Effect,
    Perform,
    SendBytes,
    SendRequest,
)
from phalanx.endpoints.sniffing import HAZELCAST_MARK
from phalanx.maps.call_plans import FIND_TABLE, CallPlan
from phalanx.maps.map_plans import MapPlans
from phalanx.maps.scanning import Scan
from phalanx.wire.messages import PageReply

MAX_UNDER_WAY: Final = 1_000
"""Requests of one connection that wait for owners; further ones are not read."""
MAX_UNDER_WAY_BYTES: Final = 8 * 1024 * 1024
"""Bytes of these requests."""
MAX_LOT: Final = 32
"""The most requests that are begun in one turn."""
KNOWN_MAPS: Final = 256
"""How many maps a connection keeps the plans of."""
_HEAD: Final = struct.Struct("<iqi")

HANDLERS: Final[dict[int, Handler]] = {**KEY_CALLS, **BULK_CALLS, **CLIENT_CALLS, **EXECUTIONS, **LOCK_CALLS}


class _UnderWay(msgspec.Struct, gc=False):
    """A request that waits for an outcome."""

    kind: int
    number: int
    take: Take
    size: int
    plan: CallPlan[Any] | None = None
    """The plan of which the outcome is a step's; None: it is a reply."""


class _Stream:
    """A large answer that is written page by page."""

    def __init__(self, kind: int, number: int, tell: Callable[[PageReply], bytes]) -> None:
        self.kind, self.number, self.tell = kind, number, tell
        self.scan: Scan[PageReply] | None = None
        self.has_begun = False
        """Whether its first frame was written."""
        self.is_asking = True
        """Whether a page is asked for; else the client must read first."""


class HazelcastConnection:
    """The machine of one connection."""

    def __init__(self, shared: HazelcastShared, number: int, peer: str) -> None:
        self._shared, self.grid = shared, shared.grid
        self.number = number
        self.peer = peer
        self.next_id = shared.grid.next_id
        self.client = b""
        """The UUID of the client; empty: it has not shown who it is."""
        self.told_count = 0
        """How many partitions the client was told that there are."""
        self._admission: Admitted | None = None
        """An authentication under way."""
        self._mark = b""
        """The first bytes of the connection, until all three have come."""
        self._reader = MessageReader(MAX_STRANGER_BYTES)
        self._effects: list[Effect] = []
        self._out: list[bytes] = []
        """Answers of this turn."""
        self._out_bytes = 0
        self._waiting_out: list[bytes] = []
        """Answers that wait until a large one is written."""
        self._last_outcome = 0
        self._under_way: dict[int, _UnderWay] = {}
        self._under_way_bytes = 0
        self._size = 0
        """Bytes of the request that is being begun."""
        self._has_more = False
        """Whether there may be a whole request that was not begun yet."""
        self._is_closed = False
        self._stream: _Stream | None = None
        self._plans: dict[str, MapPlans] = {}
        self.locks = HeldLocks()
        """The locks that this client was granted on this connection."""
        self.now: Millis = 0
        """The time of the present input."""
        self._watch: int | None = None
        """The number under which the client wants to be told of the cluster; None: it does not, on this connection."""
        self._told: tuple[Any, Any] = (None, None)
        """The ids of the view and the table that it was told last."""

    def __repr__(self) -> str:
        return (
            f"HazelcastConnection({self.number}, under_way={len(self._under_way)}, stream={self._stream is not None})"
        )

    # --- the contract of a machine --------------------------------------------------------------------------------

    @property
    def has_more(self) -> bool:
        if self._stream is not None:
            return not self._stream.is_asking
        return self._has_more and not self._is_blocked

    @property
    def held_bytes(self) -> int:
        return self._reader.waiting_bytes if self._has_more else 0

    @property
    def commands_read(self) -> int:
        return self._reader.messages

    @property
    def part_length(self) -> int:
        return 0 if self._has_more else self._reader.part_length

    @property
    def part_bytes(self) -> int:
        return self._reader.part_bytes

    @property
    def _is_blocked(self) -> bool:
        """Return whether no further request may be begun now."""
        return (
            self._stream is not None
            or self._admission is not None
            or self._is_closed
            or len(self._under_way) >= MAX_UNDER_WAY
            or self._under_way_bytes >= MAX_UNDER_WAY_BYTES
        )

    def opened(self, now: Millis) -> list[Effect]:
        return []

    def received(self, data: bytes, now: Millis) -> list[Effect]:
        self.now = now
        if len(self._mark) < len(HAZELCAST_MARK):
            missing = len(HAZELCAST_MARK) - len(self._mark)
            self._mark += data[:missing]
            data = data[missing:]
            if not HAZELCAST_MARK.startswith(self._mark):
                return [Close("it does not begin as a client of Hazelcast does")]
        if data:
            self._reader.feed(data)
        self._has_more = True
        return self._begin_requests()

    def go_on(self, now: Millis) -> list[Effect]:
        self.now = now
        if self._stream is not None:
            if not self._stream.is_asking:
                self._ask_for_page(self._stream)
            return self._end_turn()
        return self._begin_requests()

    def answered(self, number: int, outcome: Any, now: Millis) -> list[Effect]:
        self.now = now
        under_way = self._under_way.pop(number)
        self._under_way_bytes -= under_way.size
        self._size = under_way.size
        if under_way.plan is not None:
            self._guarded(under_way.kind, under_way.number, lambda: self._advance(under_way, outcome))
        else:
            self._guarded(
                under_way.kind, under_way.number, lambda: under_way.take(under_way.kind, under_way.number, outcome)
            )
        return self._end_turn()

    def cluster_changed(self, now: Millis) -> list[Effect]:
        self._tell_cluster()
        return self._end_turn()

    def next_deadline(self) -> Millis | None:
        return self.locks.renew_at

    def on_time(self, now: Millis) -> list[Effect]:
        self.now = now
        self.locks.renew(self)
        return self._end_turn()

    def closed(self) -> None:
        self._is_closed = True
        self._under_way.clear()
        self._stream = None

    # --- requests --------------------------------------------------------------------------------------------------

    def _begin_requests(self) -> list[Effect]:
        """Begin requests that have arrived, until none is left, or the turn is over."""
        try:
            for _ in range(MAX_LOT):
                if self._is_blocked or self._out_bytes > TURN_BYTES:
                    break
                message = self._reader.next()
                if message is None:
                    self._has_more = False
                    break
                self._begin(message)
        except BadFrame as error:
            self._end(str(error))
        return self._end_turn()

    def _begin(self, message: Message) -> None:
        """Begin one request. Raises `BadFrame`."""
        first = message[0]
        if type(first) is FrameMark or len(first) < MESSAGE_HEAD_BYTES:
            raise BadFrame(f"the first frame of a message has {len(first)} bytes, and needs {MESSAGE_HEAD_BYTES}")
        kind, number, _ = _HEAD.unpack_from(first)
        if not self.client:
            self._authenticate(kind, number, message)
            return
        handler = HANDLERS.get(kind)
        if handler is None:
            self._write(error_message(number, RefusedCall(Code.UNSUPPORTED, why_unsupported(kind))))
            return
        self._size = sum(map(len, message))
        fields = Fields(message)
        self._guarded(kind, number, lambda: handler(self, kind, number, fields))

    def _guarded(self, kind: int, number: int, serve: Callable[[], bytes | None]) -> None:
        """Write the answer that this returns, or the error that it raises. Raises `BadFrame`."""
        try:
            answer = serve()
        except RefusedCall as refusal:
            answer = error_message(number, refusal)
        except PhalanxError as error:
            answer = error_message(number, refusal_of(error))
        if answer is not None:
            self._write(answer)

    # --- what handlers use -------------------------------------------------------------------------------------------

    def holder(self, thread: int) -> str:
        """Return the name by which a thread of this client holds locks, at every member."""
        return f"hazelcast/{self.client.hex()}/{thread}"

    def plans(self, name: str) -> MapPlans:
        """Return the plans of a map."""
        found = self._plans.get(name)
        if found is None:
            if len(self._plans) >= KNOWN_MAPS:
                self._plans.clear()
            found = self._plans[name] = MapPlans(name, self.grid, self.grid.clock_s)
        return found

    def ask(self, key: bytes, request: Any, kind: int, number: int, take: Take) -> bytes | None:
        """Send a request to the owner of a key. `take` makes the answer of its reply. Return None: it comes later."""
        return self.ask_partition(partition_of(key, self.grid.partition_count), request, kind, number, take)

    def ask_partition(self, partition: int, request: Any, kind: int, number: int, take: Take) -> bytes | None:
        """Send a request to the owner of a partition."""
        self._effects.append(SendRequest(self._wait_for(_UnderWay(kind, number, take, self._size)), partition, request))
        return None

    def ask_member(self, member: MemberId, request: Any, kind: int, number: int, take: Take) -> bytes | None:
        """Send a request to one member."""
        self._effects.append(SendRequest(self._wait_for(_UnderWay(kind, number, take, self._size)), 0, request, member))
        return None

    def perform(self, plan: CallPlan[Any], kind: int, number: int, take: Take) -> bytes | None:
        """Carry out a plan. `take` makes the answer of its result."""
        return self._advance(_UnderWay(kind, number, take, self._size, plan), None)

    def stream(self, name: str, kind: int, number: int, tell: Callable[[PageReply], bytes]) -> bytes | None:
        """Answer with what `tell` makes of each page of a map. Return None: the answer comes later."""
        stream = self._stream = _Stream(kind, number, tell)

        def begin(kind: int, number: int, table: Any) -> None:
            count = table.partition_count
            stream.scan = self.plans(name).scan_data(range(count), count)
            self._ask_for_page(stream)

        return self.perform(_table(), kind, number, begin)

    def watch_cluster(self, number: int) -> None:
        """Tell the client of members and partitions under this number, at once and at every change."""
        self._watch, self._told = number, (None, None)
        self._tell_cluster()

    def _wait_for(self, under_way: _UnderWay) -> int:
        self._last_outcome += 1
        self._under_way[self._last_outcome] = under_way
        self._under_way_bytes += under_way.size
        return self._last_outcome

    def _advance(self, under_way: _UnderWay, outcome: Any) -> bytes | None:
        """Take a plan one step further. Raises the errors of the plan."""
        plan = under_way.plan
        if plan is None:
            return None
        try:
            step = plan.throw(outcome) if isinstance(outcome, PhalanxError) else plan.send(outcome)
        except StopIteration as end:
            return under_way.take(under_way.kind, under_way.number, end.value)
        self._effects.append(Perform(self._wait_for(under_way), step))
        return None

    # --- a large answer ----------------------------------------------------------------------------------------------

    def _ask_for_page(self, stream: _Stream) -> None:
        scan = stream.scan
        if scan is None:
            return
        stream.is_asking = True
        under_way = _UnderWay(stream.kind, stream.number, self._take_pages, 0, _pages(scan))
        self._guarded(stream.kind, stream.number, lambda: self._advance(under_way, None))

    def _take_pages(self, kind: int, number: int, pages: Any) -> bytes | None:
        """Write the next pages of a large answer, or its end."""
        stream = self._stream
        if stream is None:
            return None
        if isinstance(pages, PhalanxError):
            self._stream = None
            if stream.has_begun:
                # A message that has begun has no place for an error.
                self._end(f"a large answer could not be ended: {pages}", is_peers_fault=False)
                return None
            self._waiting_out.insert(0, error_message(number, refusal_of(pages)))
        else:
            begun = b"" if stream.has_begun else answer_head(kind + 1, number, is_last=False) + BEGIN_FRAME
            stream.has_begun = True
            stream.is_asking = False
            if pages is not None:
                self._put_out(begun + b"".join(map(stream.tell, pages)))
                return None
            self._stream = None
            self._put_out(begun + LAST_END_FRAME)
        waiting, self._waiting_out = self._waiting_out, []
        for answer in waiting:
            self._put_out(answer)
        self._tell_cluster()
        return None

    # --- who the client is -------------------------------------------------------------------------------------------

    def _authenticate(self, kind: int, number: int, message: Message) -> None:
        judged = admission_of(self._shared.credentials, self._shared.cluster, kind, Fields(message))
        if isinstance(judged, Denied):
            self._put_out(judged.answer(kind, number))
            self._end(judged.reason)
            return
        self._admission = judged
        self._effects.append(Admit())

        def take(kind: int, number: int, identity: Any) -> bytes | None:
            self._admission = None
            if isinstance(identity, PhalanxError):
                self._put_out(error_message(number, refusal_of(identity)))
                self._end(f"its client could not be let in: {identity}", is_peers_fault=False)
                return None
            self.client, self.told_count = judged.client, identity.partition_count
            self._reader.max_bytes = self.grid.max_frame_bytes
            self._has_more = True
            return self._shared.welcome(kind, number, identity)

        self.perform(_told(self._shared.identify()), kind, number, take)

    def _tell_cluster(self) -> None:
        """Tell the client of members and partitions, where they are others than it knows."""
        view, table, number = self.grid.view, self.grid.table, self._watch
        if number is None or view is None or self._stream is not None:
            return
        told_view, told_table = self._told
        if told_view != view.id:
            self._put_out(members_event(number, view))
        if table is not None and (told_table != table.version or told_view != view.id):
            self._put_out(partitions_event(number, view, table, self.told_count))
        self._told = view.id, table.version if table is not None else None

    # --- writing -----------------------------------------------------------------------------------------------------

    def _write(self, answer: bytes) -> None:
        """Write an answer, behind a large one that is being written."""
        if self._stream is not None:
            self._waiting_out.append(answer)
        else:
            self._put_out(answer)

    def _put_out(self, data: bytes) -> None:
        self._out.append(data)
        self._out_bytes += len(data)

    def _end(self, reason: str, *, is_peers_fault: bool = True) -> None:
        """Close the connection behind what was written."""
        if not self._is_closed:
            self._is_closed = True
            self._flush()
            self._effects.append(Close(reason if is_peers_fault else ""))

    def _flush(self) -> None:
        if self._out:
            self._effects.append(SendBytes(b"".join(self._out)))
            self._out, self._out_bytes = [], 0

    def _end_turn(self) -> list[Effect]:
        if self._out and not self._is_closed:
            self._flush()
        effects, self._effects = self._effects, []
        return effects


def _table() -> CallPlan[Any]:
    return (yield FIND_TABLE)


def _told(plan: CallPlan[Any]) -> CallPlan[Any]:
    """Return the result of a plan, or the error with which it ends."""
    try:
        return (yield from plan)
    except PhalanxError as error:
        return error


def _pages(scan: Scan[PageReply]) -> CallPlan[Any]:
    return _told(scan.next_pages())
