"""One connection of a client: reads its requests, has them served, and writes the answers as they come.

A connection begins with three bytes and an authentication; nothing else is read before. Then requests are served side by side, each
answer names its request. The one thing that comes alone is a large answer: its frames are written page by page as the client reads
them, and until it has ended no other request is begun and other answers wait.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from phalanx.codec.hashing import partition_of
from phalanx.common.ids import MemberId, Millis
from phalanx.endpoints.protocol import (
    MAX_STRANGER_BYTES,
    TURN_BYTES,
    TURN_S,
    Admit,
    Close,
    Effect,
    SendBytes,
)
from phalanx.maps.call_plans import CallPlan
from phalanx.maps.map_plans import MapPlans
from phalanx.net.sniffing import HAZELCAST_MARK
from phalanx.wire.messages import PageReply
from phalanx_protocols.hazelcast.authentication import Admitted, Denied, admission_of
from phalanx_protocols.hazelcast.bulk_calls import BULK_CALLS
from phalanx_protocols.hazelcast.client_calls import CLIENT_CALLS
from phalanx_protocols.hazelcast.cluster_news import ClusterNews
from phalanx_protocols.hazelcast.errors import Code, RefusedCall, error_message, refusal_of
from phalanx_protocols.hazelcast.executions import EXECUTIONS
from phalanx_protocols.hazelcast.fields import Fields
from phalanx_protocols.hazelcast.frames import (
    MESSAGE_HEAD_BYTES,
    BadFrame,
    FrameMark,
    Message,
    MessageReader,
)
from phalanx_protocols.hazelcast.large_answers import BrokenOff, LargeAnswer
from phalanx_protocols.hazelcast.lock_calls import LOCK_CALLS, HeldLocks
from phalanx_protocols.hazelcast.map_calls import KEY_CALLS
from phalanx_protocols.hazelcast.names import name_of, why_unsupported
from phalanx_protocols.hazelcast.schema_calls import SCHEMA_CALLS
from phalanx_protocols.hazelcast.serving import Handler, Take
from phalanx_protocols.hazelcast.shared import HazelcastShared
from phalanx_protocols.hazelcast.under_way import PLAN_BYTES, RequestsUnderWay, result_or_error

FIRST_LOT: Final = 8
MAX_LOT: Final = 32
"""How many requests are begun in one turn: the first of a burst, and the most. A client that has many under way sends them all at once
and waits; its first answers go out soon, so that it works on them while the rest is served."""
KNOWN_MAPS: Final = 256
"""How many maps a connection keeps the plans of."""
_HEAD: Final = struct.Struct("<iqi")

HANDLERS: Final[dict[int, Handler]] = {
    **KEY_CALLS, **BULK_CALLS, **CLIENT_CALLS, **EXECUTIONS, **LOCK_CALLS, **SCHEMA_CALLS,
}  # fmt: skip


class HazelcastConnection:
    """The machine of one connection."""

    def __init__(self, shared: HazelcastShared, number: int, peer: str) -> None:
        self._shared, self.grid = shared, shared.grid
        self.number = number
        self.peer = peer
        self.next_id = shared.grid.next_id
        self.client = b""
        """The UUID of the client; empty: it has not shown who it is."""
        self._admission: Admitted | None = None
        """An authentication under way."""
        self._mark = b""
        """The first bytes of the connection, until all three have come."""
        self._reader = MessageReader(MAX_STRANGER_BYTES)
        self._out: list[bytes] = []
        """Answers of this turn."""
        self._out_bytes = 0
        self._under_way = RequestsUnderWay()
        self._has_more = False
        """Whether there can be a whole request that was not begun yet."""
        self._lot = FIRST_LOT
        """How many requests the next turn begins."""
        self._is_closed = False
        self._large: LargeAnswer | None = None
        """The large answer that is being written."""
        self._plans: dict[str, MapPlans] = {}
        self.locks = HeldLocks()
        """The locks that this client was granted on this connection."""
        self.now: Millis = 0
        """The time of the present input."""
        self._news = ClusterNews(self.grid)

    def __repr__(self) -> str:
        return f"HazelcastConnection({self.number}, under_way={len(self._under_way)}, large={self._large is not None})"

    # --- the contract of a machine --------------------------------------------------------------------------------

    @property
    def has_more(self) -> bool:
        if self._large is not None:
            return not self._large.is_asking
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
        """Return whether no further request can be begun now."""
        return self._large is not None or self._admission is not None or self._is_closed or self._under_way.is_full

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
        if self._large is not None:
            if not self._large.is_asking:
                self._ask_for_page(self._large)
            return self._end_turn()
        return self._begin_requests()

    def answered(self, number: int, outcome: Any, now: Millis) -> list[Effect]:
        self.now = now
        under_way, go_on = self._under_way.ended(number, outcome)
        self._evaluate(under_way.kind, under_way.number, go_on)
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
        self._under_way.forget()
        self._large = None

    # --- requests --------------------------------------------------------------------------------------------------

    def _begin_requests(self) -> list[Effect]:
        """Begin requests that have arrived, until none is left, or the turn is over."""
        clock_s = self.grid.clock_s
        until_s = clock_s() + TURN_S
        try:
            for _ in range(self._lot):
                if self._is_blocked or self._out_bytes > TURN_BYTES or clock_s() >= until_s:
                    break
                message = self._reader.next()
                if message is None:
                    self._has_more, self._lot = False, FIRST_LOT
                    break
                self._begin(message)
            else:
                self._lot = min(2 * self._lot, MAX_LOT)
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
        self._under_way.message = message
        self._evaluate(kind, number, handler, self, kind, number, Fields(message))

    def _evaluate(self, kind: int, number: int, serve: Callable[..., bytes | None], *arguments: Any) -> None:
        """Write the answer that a function returns, or the error for what it raises: every exception of a call comes here.

        Raises `BadFrame`, where the fields of a request cannot be read.
        """
        try:
            answer = serve(*arguments)
        except BadFrame:
            raise
        except Exception as error:
            answer = self._error(kind, number, error)
        if answer is not None:
            self._under_way.window.note(len(answer))
            self._write(answer)

    def _error(self, kind: int, number: int, error: Exception) -> bytes:
        """Return the answer for an exception of a call, and count those that nobody raised on purpose."""
        refusal = refusal_of(error)
        if refusal.code is Code.HAZELCAST:
            self.grid.failed(name_of(kind), error)
        return error_message(number, refusal)

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

    def ask(
        self, key: bytes, request: Any, kind: int, number: int, take: Take, *, is_waiting: bool = False
    ) -> bytes | None:
        """Send a request to the owner of a key. `take` makes the answer of its reply. Return None: it comes later.

        `is_waiting`: it is answered when another client does something.
        """
        partition = partition_of(key, self.grid.partition_count)
        self._under_way.ask(partition, request, kind, number, take, is_waiting=is_waiting)
        return None

    def ask_partition(self, partition: int, request: Any, kind: int, number: int, take: Take) -> bytes | None:
        """Send a request to the owner of a partition."""
        self._under_way.ask(partition, request, kind, number, take)
        return None

    def ask_member(self, member: MemberId, request: Any, kind: int, number: int, take: Take) -> bytes | None:
        """Send a request to one member."""
        self._under_way.ask(0, request, kind, number, take, member)
        return None

    def perform(self, plan: CallPlan[Any], kind: int, number: int, take: Take, held: int = PLAN_BYTES) -> bytes | None:
        """Carry out a plan. `take` makes the answer of its result. `held`: how many bytes it holds meanwhile, about."""
        return self._under_way.perform(plan, kind, number, take, held)

    def stream(self, name: str, kind: int, number: int, tell: Callable[[PageReply], bytes]) -> bytes | None:
        """Answer with what `tell` makes of each page of a map. Return None: the answer comes later."""
        large = self._large = LargeAnswer(kind, number, tell)

        def begin(kind: int, number: int, counted: Any) -> None:
            if isinstance(counted, Exception):
                self._end_large(large)
                raise counted
            of, filled = counted
            large.begin(self.plans(name).scan_data(sorted(filled), of))
            self._ask_for_page(large)

        return self.perform(result_or_error(self.plans(name).filled_partitions()), kind, number, begin)

    def watch_cluster(self, number: int) -> None:
        """Tell the client of members and partitions under this number, at once and at every change."""
        self._news.watch(number)
        self._tell_cluster()

    def _ask_for_page(self, large: LargeAnswer) -> None:
        plan = large.next_pages()
        if plan is not None:
            under_way = self._under_way
            self._evaluate(
                large.kind, large.number, under_way.perform, plan, large.kind, large.number, self._take_pages
            )

    def _take_pages(self, kind: int, number: int, pages: Any) -> bytes | None:
        """Write the next pages of a large answer, or its end with what waited for it."""
        large = self._large
        if large is None:
            return None
        try:
            self._put_out(large.take(pages))
        except BrokenOff as error:
            self._large = None
            self._end(str(error), is_peers_fault=False)
            return None
        except Exception:  # nothing of it was written: its answer is the error
            self._end_large(large)
            raise
        if large.has_ended:
            self._end_large(large)
        return None

    def _end_large(self, large: LargeAnswer) -> None:
        """Write what waited for the end of a large answer."""
        self._large = None
        for answer in large.waiting:
            self._put_out(answer)
        self._tell_cluster()

    # --- who the client is -------------------------------------------------------------------------------------------

    def _authenticate(self, kind: int, number: int, message: Message) -> None:
        judged = admission_of(self._shared.credentials, self._shared.cluster, kind, Fields(message))
        if isinstance(judged, Denied):
            self._put_out(judged.answer(kind, number))
            self._end(judged.reason)
            return
        self._admission = judged
        self._under_way.effects.append(Admit())

        def take(kind: int, number: int, identity: Any) -> bytes | None:
            self._admission = None
            if isinstance(identity, Exception):
                self._put_out(self._error(kind, number, identity))
                self._end(f"its client could not be let in: {identity}", is_peers_fault=False)
                return None
            self.client, self._news.partition_count = judged.client, identity.partition_count
            self._reader.max_bytes = self.grid.max_frame_bytes
            self._has_more = True
            return self._shared.welcome(kind, number, identity)

        self.perform(result_or_error(self._shared.identify()), kind, number, take)

    def _tell_cluster(self) -> None:
        """Tell the client of members and partitions, where they are others than it knows."""
        if self._large is None:
            for event in self._news.events():
                self._put_out(event)

    # --- writing -----------------------------------------------------------------------------------------------------

    def _write(self, answer: bytes) -> None:
        """Write an answer, behind a large one that is being written."""
        if self._large is not None:
            self._large.waiting.append(answer)
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
            self._under_way.effects.append(Close(reason if is_peers_fault else ""))

    def _flush(self) -> None:
        if self._out:
            self._under_way.effects.append(SendBytes(b"".join(self._out)))
            self._out, self._out_bytes = [], 0

    def _end_turn(self) -> list[Effect]:
        if self._out and not self._is_closed:
            self._flush()
        self._under_way.message = []
        effects, self._under_way.effects = self._under_way.effects, []
        return effects
