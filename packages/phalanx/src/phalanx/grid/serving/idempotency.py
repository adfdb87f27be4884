"""Apply a write once, however often it is requested: what its owner does before and after applying it.

Before: an operation with an outcome in the partition's record is answered from there. The first owner's answer waited
for the backups. This owner may have been a backup that had more writes than the others, so this answer waits, too: for
an empty write after all writes that are here.

After: the outcome goes into the record and, with the write, to the backups. A first try that changes nothing leaves no
outcome: its answer ends the call, or it is lost and the next try decides. For a retry the outcome is recorded even
then:

1. P asks A to store X if K has no value; the request is slow. The table makes B the owner, so P asks B.
2. B finds a value: P is told so, and goes on. The value is removed; the table makes A the owner again.
3. The first request arrives at A, and must not store X.
"""

from __future__ import annotations

import msgspec

from phalanx.common.errors import ErrorCode
from phalanx.common.ids import Target
from phalanx.grid.replica.deduplication import NOT_KEPT, OperationState
from phalanx.grid.replication.call import PartitionCall
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.ownership import Ownership
from phalanx.grid.serving.replies import Replies
from phalanx.wire.messages import (
    AppliedOperation,
    DoneReply,
    FlagReply,
    OperationRequest,
    OutcomeValue,
    Put,
    ReleaseLock,
    Replace,
    Reply,
    UpdatedReply,
    UpdateWhere,
    ValueReply,
)


class Idempotency:
    """Lets the owner apply each write of a caller once, and answer it as often as it comes."""

    def __init__(self, leader: Leader, ownership: Ownership, replies: Replies) -> None:
        self._leader = leader
        self._ownership = ownership
        self._replies = replies

    def answer_if_duplicate(self, call: PartitionCall[OperationRequest]) -> bool:
        """Return whether a write must not be applied, because it was before, or cannot be recorded. Then its caller gets the
        answer."""
        caller, request = call.caller, call.request
        outcomes = call.owned.replica.deduplication
        record = outcomes.callers.get(caller)
        if record is None:
            return not self._check_room(call)
        if not 0 < (number := request.op or request.id) <= record.number:
            return False
        outcome = outcomes.find(caller, number)
        if outcome is OperationState.NEW:
            return False
        if isinstance(outcome, OperationState):
            text = f"write {number} is over, or its outcome was forgotten"
            self._replies.refuse(call, ErrorCode.INDETERMINATE, text)
        elif outcome == NOT_KEPT:
            text = f"write {number} was applied once; the value that it returned is over max_outcome_bytes, and was not kept"
            self._replies.refuse(call, ErrorCode.INDETERMINATE, text)
        elif (reply := _reply(request, outcome)) is None:
            text = f"write {number} of this caller was another one: a number names one operation"
            self._replies.refuse(call, ErrorCode.INVALID, text)
        else:
            self._leader.answer_behind(call, request.map, reply)
        return True

    def _check_room(self, call: PartitionCall[OperationRequest]) -> bool:
        """Check that a write of a caller without a record can be recorded; if not, tell the caller to retry later."""
        most, owned = self._ownership.config.max_callers, call.owned
        if owned.replica.deduplication.has_room(call.caller, most, call.now):
            return True
        text = (
            f"{most} callers have written to partition {owned.number} within minutes, and of more it is not kept what"
        )
        advice = "let programs share a client, or raise max_callers of the members"
        self._replies.refuse(call, ErrorCode.NOT_READY, f"{text} became of their writes: {advice}")
        return False

    def applied_as(self, call: PartitionCall[OperationRequest], outcome: OutcomeValue) -> AppliedOperation | None:
        """Return what all replicas record of a write that is about to be applied; None: it has no number, and cannot be retried.

        What this member's own program asks has one, too, also where there are no streams:

        1. The program's request waits here, because the partition is not served yet.
        2. The table changes, and the program asks again: that waits here, too.
        3. The partition is served, and both are carried out, one after the other.
        """
        request = call.request
        number = request.op or request.id
        if number < 1:
            return None
        if type(outcome) is bytes and len(outcome) > self._ownership.config.max_outcome_bytes:
            outcome = NOT_KEPT
        return AppliedOperation(call.caller, number, request.open_from, outcome)

    def answer_unchanged(self, call: PartitionCall[OperationRequest], reply: Reply, outcome: OutcomeValue) -> None:
        """Answer a write that changes nothing."""
        name = call.request.map
        if call.request.op:
            self._leader.answer_behind(call, name, reply, self.applied_as(call, outcome))
        elif self._leader.is_unsynced(call.owned, name, call.now):
            self._leader.answer_behind(call, name, reply)  # a power cut must not take away what it says
        else:
            self._replies.send(call.caller, reply)


def was_noted(owned: OwnedPartition, caller: Target, request: OperationRequest) -> bool:
    """Return whether an earlier try of this write was, or may have been, applied to this replica, here or at an earlier
    owner."""
    number = request.op or request.id
    return number > 0 and owned.replica.deduplication.find(caller, number) is not OperationState.NEW


def _reply(request: OperationRequest, outcome: OutcomeValue) -> Reply | None:
    """Return the answer that has this outcome; None: a request of this type cannot have it."""
    if isinstance(request, UpdateWhere):
        return _reply_of_slice(request.id, outcome)
    if isinstance(request, Replace | ReleaseLock):
        return FlagReply(request.id, outcome) if isinstance(outcome, bool) else None
    if isinstance(outcome, bool):
        return None
    if isinstance(request, Put):
        return DoneReply(request.id) if outcome is None else None
    return ValueReply(request.id, outcome)


class _SliceOutcome(msgspec.Struct, array_like=True):
    """The fields of an `UpdatedReply` but its id."""

    changed: int
    more: bool
    after_key: bytes
    failed: int
    failed_key: bytes
    reason: str


_to_outcome = msgspec.msgpack.Encoder().encode
_from_outcome = msgspec.msgpack.Decoder(_SliceOutcome).decode


def outcome_of_slice(reply: UpdatedReply) -> bytes:
    """Return what is recorded of a slice."""
    return _to_outcome(
        _SliceOutcome(reply.changed, reply.more, reply.after_key, reply.failed, reply.failed_key, reply.reason)
    )


def _reply_of_slice(request_id: int, outcome: OutcomeValue) -> UpdatedReply | None:
    """Return the answer of a slice with this outcome; None: it is not one of a slice."""
    if outcome is None:
        return UpdatedReply(request_id, 0, False)  # the map had no entries here
    try:
        slice_outcome = _from_outcome(outcome) if isinstance(outcome, bytes) else None
    except msgspec.MsgspecError:
        return None
    return UpdatedReply(request_id, *msgspec.structs.astuple(slice_outcome)) if slice_outcome is not None else None
