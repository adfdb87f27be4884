"""A write is applied once, however often it is asked for: what its owner does before and after applying it.

Before: an operation with an outcome in the partition's record is answered from there. Its first owner's answer waited
for the backups, and this owner may be a backup of then that has more than the others, so this answer waits too: for an
empty write behind everything that is here.

After: the outcome goes into the record and, with the write, to the backups. A first try that changes nothing leaves no
outcome: its answer either ends the call or is as good as none. For another one the outcome is noted even then:

1. P asks A to store X if K has no value; the request is slow. The table makes B the owner, so P asks B.
2. B finds a value: P is told so, and goes on. The value is removed; the table makes A the owner again.
3. The first request arrives at A, and must not store X.
"""

from __future__ import annotations

from phalanx.common.errors import ErrorCode
from phalanx.common.ids import Millis, Target
from phalanx.grid.replica.deduplication import NOT_KEPT, OperationStanding
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.wire.messages import (
    AppliedOperation,
    DoneReply,
    FlagReply,
    KeyWrite,
    OutcomeValue,
    Put,
    Replace,
    Reply,
    ValueReply,
)


def was_applied(leader: Leader, owned: OwnedPartition, caller: Target, request: KeyWrite, now: Millis) -> bool:
    """Whether a write must not be applied (any more, or yet): then its caller is told why."""
    outcomes = owned.replica.deduplication
    record = outcomes.callers.get(caller)
    if record is None:
        return not _has_room(leader, owned, caller, request, now)
    if not 0 < (number := request.op or request.id) <= record.number:
        return False
    outcome = outcomes.find(caller, number)
    if outcome is OperationStanding.NEW:
        return False
    if isinstance(outcome, OperationStanding):
        text = f"write {number} is over, or its outcome was forgotten"
        leader.fail(caller, request.id, ErrorCode.INDETERMINATE, text)
    elif outcome == NOT_KEPT:
        text = (
            f"write {number} was applied once; the value that it returned is over max_outcome_bytes, and was not kept"
        )
        leader.fail(caller, request.id, ErrorCode.INDETERMINATE, text)
    elif (reply := _reply(request, outcome)) is None:
        text = f"write {number} of this caller was another one: a number names one operation"
        leader.fail(caller, request.id, ErrorCode.INVALID, text)
    else:
        leader.write(owned, owned.next_nothing(request.map), caller, reply, now)
    return True


def _has_room(leader: Leader, owned: OwnedPartition, caller: Target, request: KeyWrite, now: Millis) -> bool:
    """Whether a write of a caller of whom nothing is known can be noted; else it is told to ask later."""
    most = leader.config.max_callers
    if owned.replica.deduplication.has_room(caller, most, now):
        return True
    text = f"{most} callers have written to partition {owned.number} within minutes, and of more it is not kept what"
    advice = "let programs share a client, or raise max_callers of the members"
    leader.fail(caller, request.id, ErrorCode.NOT_READY, f"{text} became of their writes: {advice}")
    return False


def was_noted(owned: OwnedPartition, caller: Target, request: KeyWrite) -> bool:
    """Whether an earlier try of this write was applied here or where this replica was before, or may have been."""
    number = request.op or request.id
    return number > 0 and owned.replica.deduplication.find(caller, number) is not OperationStanding.NEW


def applied_as(
    leader: Leader, owned: OwnedPartition, caller: Target, request: KeyWrite, outcome: OutcomeValue
) -> AppliedOperation | None:
    """Return what all replicas are to remember of a write that is about to be applied; None: nobody can ask for it again.

    That is so if it has no number, and of this member's own program while nobody else has the partition: it is answered
    within the same input.
    """
    number = request.op or request.id
    if number < 1 or (caller == leader.this and not owned.streams and not request.op):
        return None
    if type(outcome) is bytes and len(outcome) > leader.config.max_outcome_bytes:
        outcome = NOT_KEPT
    return AppliedOperation(caller, number, request.open_from, outcome)


def answer_unchanged(
    leader: Leader,
    owned: OwnedPartition,
    caller: Target,
    request: KeyWrite,
    reply: Reply,
    outcome: OutcomeValue,
    now: Millis,
) -> None:
    """Answer a write that changes nothing."""
    if request.op:
        applied = applied_as(leader, owned, caller, request, outcome)
        leader.write(owned, owned.next_nothing(request.map, applied), caller, reply, now)
    else:
        leader.out.send(caller, reply)


def _reply(request: KeyWrite, outcome: OutcomeValue) -> Reply | None:
    """The answer with that outcome; None if the request cannot have it."""
    if isinstance(request, Replace):
        return FlagReply(request.id, outcome) if isinstance(outcome, bool) else None
    if isinstance(outcome, bool):
        return None
    if isinstance(request, Put):
        return DoneReply(request.id) if outcome is None else None
    return ValueReply(request.id, outcome)
