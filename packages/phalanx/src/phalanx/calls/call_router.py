"""Route calls on the grid to owners, retry them, and end each with exactly one answer.

Members use this for the program that embeds them, and clients use it. Each call goes to the owner of its partition in
the newest table known here, if that owner is still a member. It is retried until its deadline when the owner is not
ready, has changed, or was lost. Each retry of a write of one key names the same operation, which owners apply once
(`idempotency`). So its outcome is unknown only if the deadline comes first, or if an owner has forgotten it.

Without an answer, a write's outcome is unknown only if one of its tries may have left this process. A try has not left
if the connection was refused: the driver drops all that it has queued for it. A client knows more (`on_link_up`): a
request that was never handed to an open connection has not left.

A call under which two members ended is not asked of a third (`lost_members`).

A request for several partitions is handed back when its owner has changed: its parts can have different owners now, and
only the caller can group it again. A slice of one partition (`UpdateWhere`) is retried as a write of one key is, and is
handed back only when the partitions were divided: its partition is several then, and its operation is none of these.
"""

from __future__ import annotations

from collections.abc import Set
from heapq import heapify, heappop, heappush

import msgspec

from phalanx.calls.lost_members import MOST_ENDED, ended_in_turn, ended_reply
from phalanx.codec.hashing import partition_of
from phalanx.common.errors import ErrorCode
from phalanx.common.ids import NEVER, Lost, MemberId, Millis, Target
from phalanx.common.restart_wait import RestartWait, wait_in_words
from phalanx.common.table import PartitionTable, why_dormant
from phalanx.common.view import MembersView
from phalanx.machine.alarms import Alarm
from phalanx.machine.effects import Answer
from phalanx.machine.inputs import Call, LinkLost, LinkRefused
from phalanx.machine.outbox import Outbox
from phalanx.wire.messages import OPERATIONS, WRITES, BulkRequest, ErrorReply, KeyRequest, Reply, Request, UpdateWhere

RETRY_PAUSE_MS = 20
"""Pause before a call that found no owner is retried; a newer table ends the pause at once."""
REPEAT_WITHIN_MS = 5 * 60_000
"""A write is not retried later than this after its call began: after `SILENT_MS` an owner can forget its outcome."""
SPARE_ENDS = 64
"""How many early deadlines of finished calls can stay in the heap of early deadlines until it is cleaned."""
_NOT_DONE = (ErrorCode.NOT_ENOUGH_MEMBERS, ErrorCode.GRID_FULL, ErrorCode.UNAVAILABLE)
"""Errors that end a call, and mean that this try of a write was not done."""


def why_no_owners(view: MembersView, wait: RestartWait | None) -> str:
    """Return why no partition can have an owner, for callers that wait for one; empty: one can.

    `wait`: for whom the cluster waits, which was switched off.
    """
    if wait is not None:
        return wait_in_words(wait)
    return "" if view.data_members else "no member of the cluster holds data: all are lite members; start another"


class PendingCall(msgspec.Struct, gc=False):
    """A call that has not been answered."""

    call: Call
    deadline: Millis
    target: Target | None = None
    """The member that is being asked now; None while the call waits for its next try."""
    try_id: int = 0
    """The id of the latest try."""
    was_asked: bool = False
    """Whether there was a try: the next one names the operation of the first."""
    may_be_applied: bool = False
    """Whether an earlier try may have been applied: it had left, and its owner was lost or gave no outcome."""
    why_waiting: str = "no member has told who owns the partition"
    lost: Lost = ()
    """The members that were lost while they may have served it, one for each try; before them those of the call."""

    def __repr__(self) -> str:
        return f"PendingCall({self.call.request!r}, target={self.target}, was_asked={self.was_asked})"


class CallRouter:
    """The calls under way.

    All calls have the same time limit, so deadlines are in the order of the calls. The exceptions are parts of an
    earlier call (`Call.within_ms`).
    """

    def __init__(self, timeout_ms: Millis, outbox: Outbox, *, tells_links: bool = False) -> None:
        """`tells_links`: whether the driver says which connections are open (`on_link_up`)."""
        self._timeout_ms = timeout_ms
        self._out = outbox
        self._table: PartitionTable | None = None
        """The newest table known here."""
        self._members: Set[MemberId] | None = None
        """The members of the newest list known here; None: no list is known."""
        self._owners: list[MemberId | None] = []
        """By partition: its owner in that table if that list has it, else None; empty: no table is known."""
        self._pending: dict[int, PendingCall] = {}
        self.waiting: dict[int, PendingCall] = {}
        """Request id to a pending call that asks no member at present: it waits for a newer table or a retry."""
        self._sooner: list[tuple[Millis, int]] = []
        """A heap of early deadlines and request ids (`Call.within_ms`); some of these calls can be over."""
        self._retry_at = 0
        self._retries: dict[int, PendingCall] = {}
        """Id of a retry (below zero) to its call."""
        self._retries_made = 0
        self._ended = ""
        """Why calls are refused since `end`; empty: they are not."""
        self.no_owners = ""
        """Why no partition has an owner, or will get one without an operator; empty: unknown, or they have owners."""
        self.timeout_hint = ""
        """Text to add to the errors of calls whose time is over; empty: nothing."""
        self.answered_at: Millis = 0
        """When the most recently answered call began."""
        self._linked: set[Target] | None = set() if tells_links else None
        """The targets with an open connection; None: the driver does not report connections. (A member hears of lost
        connections in both directions, and cannot tell from `LinkLost` whether its own outgoing one is gone.)"""
        self.alarm = Alarm(self)

    def __repr__(self) -> str:
        return f"CallRouter(pending={len(self._pending)}, waiting={list(self.waiting.values())})"

    def begin_call(self, call: Call, now: Millis) -> None:
        request, target = call.request, call.to
        if self._ended:
            self._out.add(Answer(ErrorReply(request.id, ErrorCode.UNAVAILABLE, self._ended)))
            return
        if target is None and self._owners:
            target = self._owners[call.partition] if call.partition < len(self._owners) else None
        pending = self._pending[request.id] = PendingCall(
            call, now + self._timeout_ms, target, request.id, lost=call.lost
        )
        if call.within_ms or len(self._pending) == 1:  # else it ends after those under way
            self._note_begun(pending)
        if target is None:
            self._wait(pending, now)
        elif call.lost:
            self._send(pending, now)
        else:
            pending.was_asked = True
            self._out.send(target, request)

    def _note_begun(self, pending: PendingCall) -> None:
        """Let a call under way end at its time limit."""
        within_ms = pending.call.within_ms
        if 0 < within_ms < self._timeout_ms:
            self._end_sooner(pending, pending.deadline - self._timeout_ms + within_ms)
            self.alarm.follow()
        elif len(self._pending) == 1:
            self.alarm.set(pending.deadline)

    def _end_sooner(self, pending: PendingCall, at: Millis) -> None:
        sooner, under_way = self._sooner, self._pending
        if len(sooner) >= 2 * len(under_way) + SPARE_ENDS:
            sooner[:] = [end for end in sooner if end[1] in under_way]
            heapify(sooner)
        heappush(sooner, (at, pending.call.request.id))

    def owner_for_only_call(self, partition: int) -> MemberId | None:
        """Return the partition's owner, if it is known and no call is under way."""
        owners = self._owners
        return owners[partition] if partition < len(owners) and not self._pending else None

    def was_sent(self, call: Call, target: Target, at: Millis) -> None:
        """Record a call that was sent to its owner without a record, because its answer did not come at once."""
        pending = self._pending[call.request.id] = PendingCall(
            call, at + self._timeout_ms, target, call.request.id, was_asked=True
        )
        self._note_begun(pending)

    def is_current_try(self, request_id: int) -> bool:
        """Return whether this id is the present try of a call; any other try must not be sent any more."""
        pending = self._pending.get(request_id) if request_id >= 0 else self._retries.get(request_id)
        return pending is not None and pending.try_id == request_id and pending.target is not None

    def on_reply(self, sender: Target, reply: Reply, now: Millis) -> None:
        """Answer or retry the call. Ignore replies to finished calls and earlier tries, and of members not asked now.

        Why earlier tries: 1. A put_if_absent is sent to O, the connection for O's answers breaks, and it is sent again.
        2. O's answer to the first try comes: the key has a value. O has recorded no outcome, as nothing changed. 3. The
        key is removed. 4. The second try arrives, and stores. So a call ends only when its last try has had its effect.
        """
        pending = self._pending.get(reply.id) if reply.id >= 0 else self._retries.get(reply.id)
        if pending is None or pending.target != sender or pending.try_id != reply.id:
            return
        if type(reply) is ErrorReply and self._to_be_repeated(pending, reply):
            pending.may_be_applied = pending.may_be_applied or reply.code is ErrorCode.OWNERSHIP_LOST
            pending.why_waiting = reply.text
            self._wait(pending, now)
            return
        if type(reply) is ErrorReply and reply.code in _NOT_DONE:
            reply = _refusal_of_all_tries(pending, reply)
        if reply.id < 0:
            reply = msgspec.structs.replace(reply, id=pending.call.request.id)
        self.answered_at = pending.deadline - self._timeout_ms
        self._forget(pending)
        self._out.add(Answer(reply))

    def on_table(self, table: PartitionTable, now: Millis) -> None:
        """Send waiting calls, and calls to members that are no longer owners, to the owners in a newer table."""
        before = len(self._owners)
        self._table = table
        owners = self._owners = self._present_owners(table)
        if not self._pending:
            return
        for pending in list(self._pending.values()):
            if before != len(owners) and not self._locate(pending):
                continue
            call = pending.call
            if call.to is None and pending.target != owners[call.partition]:
                if pending.target is not None:
                    has_left = self._may_have_left(pending.target)
                    self._on_target_left(pending, f"{pending.target} is no longer the owner", now, has_left=has_left)
                if pending.call.request.id in self.waiting:
                    self._send(pending, now)

    def on_view(self, members: Set[MemberId], now: Millis) -> None:
        """Take another member list: requests to members outside it are cancelled, whatever the table says.

        1. O is removed. Requests on their way to O are dropped, so that O never executes what others execute by then.
        2. The table that gives O's partitions to others has yet to come. 3. A call begins. Sent to O, it would wait
        there until O runs again, long after the new owner was asked the same. So the call waits for that table.
        """
        self._members = members
        if self._table is not None:
            self._owners = self._present_owners(self._table)
        for pending in list(self._pending.values()):
            target = pending.target
            if pending.call.to is None and target is not None and target not in members:
                has_left = self._may_have_left(target)
                self._on_target_lost(pending, f"{target} is no member any more", now, has_left=has_left)

    def _present_owners(self, table: PartitionTable) -> list[MemberId | None]:
        owners, members = table.owners(), self._members
        if members is None or members >= set(table.members):
            return owners
        return [owner if owner in members else None for owner in owners]

    def on_link_up(self, target: Target) -> None:
        """Note an open connection: queued requests leave now, if their call `is_current_try`.

        The driver must report each connection before it sends anything on it.
        """
        if self._linked is not None:
            self._linked.add(target)

    def on_link(self, event: LinkLost | LinkRefused, now: Millis) -> None:
        """End the tries at a target that cannot be reached: their outcome is unknown, unless nothing was sent."""
        if self._pending:
            reason = event.reason if isinstance(event, LinkRefused) else "the connection was lost"
            has_left = isinstance(event, LinkLost) and self._may_have_left(event.peer)
            for pending in [pending for pending in self._pending.values() if pending.target == event.peer]:
                self._on_target_lost(pending, f"{event.peer}: {reason}", now, has_left=has_left)
        if self._linked is not None:
            self._linked.discard(event.peer)

    def _on_target_lost(self, pending: PendingCall, reason: str, now: Millis, *, has_left: bool) -> None:
        """End the present try at a target that is lost, as `_on_target_left`, and note that it can have served the call."""
        target = pending.target
        lost = (target,) if has_left and target is not None else ()
        if lost and lost not in pending.lost:
            pending.lost = (*pending.lost, lost)
        self._on_target_left(pending, reason, now, has_left=has_left, lost=lost)

    def _may_have_left(self, target: Target) -> bool:
        """Return whether what was sent to the target can have left this process."""
        return self._linked is None or target in self._linked

    def next_deadline(self) -> Millis | None:
        if not self._pending:
            return None
        first = next(iter(self._pending.values())).deadline
        if self._sooner:
            first = min(first, self._sooner[0][0])
        return min(first, self._retry_at) if self.waiting else first

    def waiting_since(self) -> Millis | None:
        """Return when the oldest call under way began."""
        return next(iter(self._pending.values())).deadline - self._timeout_ms if self._pending else None

    def waited_for_longest(self) -> Target | None:
        """Return the target of the oldest call under way."""
        return next(iter(self._pending.values())).target if self._pending else None

    def waited_for(self, before: Millis) -> dict[Target, Millis]:
        """Return the targets of the calls that began before a time, also those that they wait to ask again, each with the
        beginning of its oldest call."""
        found: dict[Target, Millis] = {}
        for pending in self._pending.values():
            since, call = pending.deadline - self._timeout_ms, pending.call
            if since >= before:
                break
            target = pending.target or call.to
            if target is None and call.partition < len(self._owners):
                target = self._owners[call.partition]
            if target is not None:
                found.setdefault(target, since)
        return found

    def on_time(self, now: Millis) -> None:
        while self._sooner and self._sooner[0][0] <= now:
            if (early := self._pending.get(heappop(self._sooner)[1])) is not None:
                self._expire(early)
        while self._pending:
            pending = next(iter(self._pending.values()))
            if pending.deadline > now:
                break
            self._expire(pending)
        if self.waiting and now >= self._retry_at:
            for pending in list(self.waiting.values()):
                self._send(pending, now)

    def end(self, reason: str) -> None:
        """Fail all open calls, and refuse those that come later."""
        self._ended = reason
        for pending in list(self._pending.values()):
            self._fail(pending, self._code_without_answer(pending), reason)

    # --- one call --------------------------------------------------------------------------------------------------

    def _locate(self, pending: PendingCall) -> bool:
        """Update the partition of a call, as the partitions may have been divided since it began.

        Return False if the call has ended: its partition number does not exist any more, and it has no single key.
        (This happens if only a master knew of the division, and that master is gone.)
        """
        request, count = pending.call.request, len(self._owners)
        if isinstance(request, KeyRequest):
            pending.call = msgspec.structs.replace(pending.call, partition=partition_of(request.key, count))
        elif pending.call.to is None and isinstance(request, UpdateWhere):
            return self._is_of_same_partitions(pending, request, count)
        elif pending.call.to is None and pending.call.partition >= count:
            self._fail(pending, ErrorCode.NOT_OWNER, f"there are {count} partitions")
            return False
        return True

    def _is_of_same_partitions(self, pending: PendingCall, request: UpdateWhere, count: int) -> bool:
        """Return whether a slice can still be asked for. If not, its call has ended: partitions were divided since.

        A try under way continues: its answer holds for the partition that was divided.
        """
        if request.of == count or (pending.target is not None and pending.call.partition < count):
            return True
        code = ErrorCode.OWNERSHIP_LOST if pending.may_be_applied else ErrorCode.NOT_OWNER
        self._fail(pending, code, f"there are {count} partitions, and were {request.of} when it began")
        return False

    def _send(self, pending: PendingCall, now: Millis) -> None:
        # The call's partition may have been computed from another table than the one known here.
        if self._owners and not self._locate(pending):
            return
        call = pending.call
        target = call.to
        if target is None and self._owners:
            target = self._owners[call.partition]
        if target is None:
            self._wait(pending, now)
            return
        if self.waiting and self.waiting.pop(call.request.id, None) is not None:
            self.alarm.follow()
        request = call.request
        if len(pending.lost) > 1 and len(ended := ended_in_turn(pending.lost, self._members)) >= MOST_ENDED:
            self._forget(pending)
            self._out.add(Answer(ended_reply(request.id, ended, is_write=isinstance(request, WRITES))))
            return
        pending.target = target
        if pending.was_asked:
            if isinstance(request, OPERATIONS) and now >= pending.deadline - self._timeout_ms + REPEAT_WITHIN_MS:
                text = f"it is too late to ask again: {pending.why_waiting}"
                self._fail(pending, self._code_without_answer(pending), text)
                return
            self._retries.pop(pending.try_id, None)
            self._retries_made += 1
            pending.try_id = -self._retries_made
            self._retries[pending.try_id] = pending
            request = _asked_again(request, pending.try_id)
        pending.was_asked = True
        self._out.send(target, request)

    def _wait(self, pending: PendingCall, now: Millis) -> None:
        if not self.waiting or self._retry_at <= now:
            self._retry_at = now + RETRY_PAUSE_MS
        pending.target = None
        self.waiting[pending.call.request.id] = pending
        self.alarm.follow()

    def _to_be_repeated(self, pending: PendingCall, reply: ErrorReply) -> bool:
        """Return whether the call is retried after this error."""
        if pending.call.to is not None:
            return False
        if reply.code in (ErrorCode.OWNERSHIP_LOST, ErrorCode.NOT_OWNER):
            return not _is_handed_back(pending.call.request)
        return reply.code is ErrorCode.NOT_READY

    def _on_target_left(
        self, pending: PendingCall, reason: str, now: Millis, *, has_left: bool, lost: tuple[str, ...] = ()
    ) -> None:
        """End the present try: retry the call, hand it back, or fail it. `has_left`: the target may have got it. `lost`: the
        target, if what is asked in its place must name it."""
        request = pending.call.request
        is_unknown = has_left and isinstance(request, WRITES)
        if pending.call.to is not None:
            self._fail(pending, ErrorCode.INDETERMINATE if is_unknown else ErrorCode.UNAVAILABLE, reason, lost)
        elif _is_handed_back(request):
            self._fail(pending, ErrorCode.OWNERSHIP_LOST if is_unknown else ErrorCode.NOT_OWNER, reason, lost)
        else:
            pending.why_waiting = reason
            pending.may_be_applied = pending.may_be_applied or has_left
            self._wait(pending, now)

    def _expire(self, pending: PendingCall) -> None:
        why = f"no answer within {self._timeout_ms} ms"
        if pending.target is None:
            dormant = why_dormant(self._table, pending.call.partition) if self._table is not None else ""
            why = f"{why}: {self.no_owners or dormant or pending.why_waiting}"
        if self.timeout_hint:
            why = f"{why}; {self.timeout_hint}"
        self._fail(pending, self._code_without_answer(pending), why)

    def code_without_answer(self, request_id: int) -> ErrorCode:
        """Return the error code for a call that gets no answer any more."""
        pending = self._pending.get(request_id)
        return self._code_without_answer(pending) if pending is not None else ErrorCode.INDETERMINATE

    def _code_without_answer(self, pending: PendingCall) -> ErrorCode:
        has_left = pending.may_be_applied or (pending.target is not None and self._may_have_left(pending.target))
        is_unknown = has_left and isinstance(pending.call.request, WRITES)
        return ErrorCode.INDETERMINATE if is_unknown else ErrorCode.UNAVAILABLE

    def _fail(self, pending: PendingCall, code: ErrorCode, text: str, lost: tuple[str, ...] = ()) -> None:
        self._forget(pending)
        self._out.add(Answer(ErrorReply(pending.call.request.id, code, text, lost)))

    def _forget(self, pending: PendingCall) -> None:
        """Remove the call, which is over."""
        request_id = pending.call.request.id
        del self._pending[request_id]
        if self._retries:
            self._retries.pop(pending.try_id, None)
        if self.waiting or self._sooner:
            self.waiting.pop(request_id, None)
            sooner = self._sooner
            while sooner and sooner[0][1] not in self._pending:
                heappop(sooner)  # so that no alarm rings for a call that is over
            self.alarm.follow()
        elif not self._pending:
            self.alarm.set(NEVER)
        elif pending.deadline == self.alarm.at:
            self.alarm.follow()


def _refusal_of_all_tries(pending: PendingCall, reply: ErrorReply) -> ErrorReply:
    """Return the error of the whole call: INDETERMINATE if an earlier try of a write may have been applied.

    The last try was refused, or was not sent, and changed nothing.
    """
    if not pending.may_be_applied or not isinstance(pending.call.request, WRITES):
        return reply
    text = f"an earlier try may have been applied, and now: {reply.text}"
    return ErrorReply(reply.id, ErrorCode.INDETERMINATE, text)


def _is_handed_back(request: Request) -> bool:
    """Return whether the caller must group a request anew when its owner has changed."""
    return isinstance(request, BulkRequest) and not isinstance(request, UpdateWhere)


def _asked_again(request: Request, request_id: int) -> Request:
    """Return the request with another id; a write of one key, or of a slice, still names the same operation."""
    if isinstance(request, OPERATIONS):
        return msgspec.structs.replace(request, id=request_id, op=request.id)
    return msgspec.structs.replace(request, id=request_id)
