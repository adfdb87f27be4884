"""What callers are told: the answer, why their request is refused, or which other member to ask."""

from __future__ import annotations

from phalanx.common.errors import ErrorCode
from phalanx.common.ids import Target
from phalanx.common.table import why_dormant
from phalanx.grid.replication.call import GridCall
from phalanx.grid.replication.ownership import Ownership
from phalanx.grid.replication.parked_requests import ParkedRequests
from phalanx.machine.outbox import Outbox
from phalanx.wire.messages import BulkRequest, ErrorReply, KeyRequest


class Replies:
    """Answers the callers of one member."""

    def __init__(self, ownership: Ownership, parked: ParkedRequests, outbox: Outbox) -> None:
        self._ownership = ownership
        self._parked = parked
        self.waiting = parked.counted
        """The requests that wait for their answers."""
        self.send = outbox.send
        """Sends an answer to a caller."""

    def fail(self, caller: Target, request_id: int, code: ErrorCode, text: str) -> None:
        """Tell a caller why its request of this id is not served."""
        self.send(caller, ErrorReply(request_id, code, text))

    def refuse(self, call: GridCall[KeyRequest | BulkRequest], code: ErrorCode, text: str) -> None:
        """Tell the caller of a request why it is not served."""
        self.fail(call.caller, call.request.id, code, text)

    def redirect(self, caller: Target, request: KeyRequest | BulkRequest, partition: int) -> None:
        """Park a request for an owned partition that does not answer at present; else tell the caller the owner."""
        ownership = self._ownership
        if ownership.is_held_back(partition):
            self._parked.hold(caller, request, partition)
            return
        owner = ownership.table.owner(partition) if ownership.table.version else None
        if owner in (None, ownership.this):
            why = why_dormant(ownership.table, partition) or "the partition has no owner yet"
            self.fail(caller, request.id, ErrorCode.NOT_READY, why)
        else:
            self.fail(caller, request.id, ErrorCode.NOT_OWNER, f"partition {partition} is owned by {owner}")
