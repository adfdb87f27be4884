"""What becomes of a request whose evaluation fails: of a function (`updates`) or of conditions (`conditions`).

Evaluation is pure, and works on values and arguments that any client chose. So whatever is raised in it is an answer to the caller
(`update_results.EvaluationRefused`), and changes nothing. What is raised where a change is applied is a defect of ours, and ends the member: its
replica can be changed in part.

    1. A client sends arguments on which a function raises. 2. The owner ends. 3. The client asks the next owner, which ends, too.
    4. So with all members, and with all data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from phalanx.common.errors import ErrorCode
from phalanx.common.ids import Millis
from phalanx.grid.replication.call import GridCall
from phalanx.grid.replication.ownership import Ownership
from phalanx.grid.serving.update_results import EvaluationRefused, Updated
from phalanx.grid.serving.updates import Function, apply_function
from phalanx.machine.outbox import Outbox
from phalanx.wire.messages import ErrorReply, ScanPacked, UpdateValue, UpdateWhere
from phalanx.wire.update_events import EvaluationFailed

RECORD_AGAIN_MS: Final[Millis] = 60_000
"""The shortest time between two events about one kind of request."""


class Evaluator:
    """Calls functions for the requests at one member, and counts refusals by unexpected exceptions."""

    def __init__(self, functions: Mapping[str, Function], ownership: Ownership, outbox: Outbox) -> None:
        self.functions = functions
        """The functions of updates, by name."""
        self._ownership = ownership
        self._out = outbox
        self.failed: Counter[str] = Counter()
        """Kind of request to how many failed."""
        self._recorded: dict[str, tuple[Millis, int]] = {}
        """Kind of request to when it was recorded last, and how many had failed then."""

    def apply(self, name: str, function: str, value: bytes | None, arguments: list[bytes]) -> Updated:
        """Return what a function makes of a value of a map. Raises `UpdateRefused`."""
        rules = self._ownership.rules
        is_json = rules.any_dict_format and rules.has_json_dicts(name)  # asked so, a map without formats costs no call
        return apply_function(self.functions, function, value, arguments, json_dicts=is_json)

    def has_json_dicts(self, name: str) -> bool:
        """Return whether the map's dicts are stored as JSON."""
        return self._ownership.rules.has_json_dicts(name)

    def note(self, kind: str, refusal: EvaluationRefused, now: Millis) -> None:
        """Count a refusal by an unexpected exception, and record it if an event about this kind of request is due."""
        if not refusal.unforeseen:
            return
        self.failed[kind] += 1
        recorded_at, recorded = self._recorded.get(kind, (now - RECORD_AGAIN_MS, 0))
        if now - recorded_at >= RECORD_AGAIN_MS:
            self._out.record(EvaluationFailed(kind, refusal.unforeseen, self.failed[kind] - recorded - 1))
            self._recorded[kind] = now, self.failed[kind]

    def refuse(
        self, call: GridCall[UpdateValue | UpdateWhere | ScanPacked], refusal: EvaluationRefused, where: str = ""
    ) -> None:
        """Tell a caller why its request is not evaluated. `where`: stands before the reason."""
        self.note(type(call.request).__name__, refusal, call.now)
        self._out.send(call.caller, ErrorReply(call.request.id, ErrorCode.INVALID, f"{where}{refusal}"))
