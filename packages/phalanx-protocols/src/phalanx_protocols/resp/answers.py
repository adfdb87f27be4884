"""What a command comes to: an answer at once, one request about one key, or a plan of several requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from phalanx.calls.lost_members import has_ended_members
from phalanx.common.errors import (
    ClientClosed,
    ErrorCode,
    GridFull,
    IndeterminateWrite,
    NotEnoughMembers,
    PhalanxError,
    UnavailableError,
)
from phalanx.endpoints.protocol import GridAccess
from phalanx.grid.serving.update_results import UpdateRefused
from phalanx.maps.call_plans import CallPlan
from phalanx.node.local_access import LocalAccess, There
from phalanx.wire.messages import CountReply, DoneReply, ErrorReply, FlagReply, Reply, ValueReply
from phalanx_protocols.redis_functions import text_of
from phalanx_protocols.resp.framing import error

REFUSED_WORDS: Final = ("ERR ", "WRONGTYPE ")
"""How the refusals of `redis_functions` begin."""


Answer: TypeAlias = bytes | CallPlan[bytes]
"""An answer, or the plan to make it."""


class KeyCall:
    """One request about one key."""

    __slots__ = ("_there", "answer_of", "key", "request")

    def __init__(
        self, key: bytes, request: Any, answer_of: Callable[[Any], Answer], there: There | None = None
    ) -> None:
        """`key`: serialised. `answer_of`: makes the answer of a reply that is not an error, or the plan to make it. `there`: the
        partition of the key, where it is known."""
        self.key = key
        self.request = request
        self.answer_of = answer_of
        self._there = there

    def partition(self, local: LocalAccess) -> There:
        """Return the partition of the key."""
        return local.partition(self.key) if self._there is None else self._there

    def answer(self, reply: Reply) -> Answer:
        """Return the answer that a reply makes, or the plan to make it. Raises what cannot be read of it."""
        return refusal(reply) if isinstance(reply, ErrorReply) else self.answer_of(reply)


Outcome: TypeAlias = Answer | KeyCall
"""What a command comes to."""


def refusal(reply: ErrorReply) -> bytes:
    """Return a member's refusal as an error of RESP."""
    return error(_refusal_text(ErrorCode(reply.code), reply.text, has_ended=has_ended_members(reply)))


def _refusal_text(code: ErrorCode, text: str, *, has_ended: bool) -> str:
    if has_ended:  # some clients repeat what is answered with TRYAGAIN
        return f"{'INDETERMINATE' if code is ErrorCode.INDETERMINATE else 'ERR'} {text}"
    if code is ErrorCode.INVALID:
        if text.startswith("there is no function "):
            text += "; the member that has the key needs the package that brings it, as this one has it"
        return text if text.startswith(REFUSED_WORDS) else f"ERR {text}"
    if code is ErrorCode.TOO_LARGE:
        return f"ERR {text}; store a smaller value, or raise the limit on every member"
    if code is ErrorCode.GRID_FULL:
        return f"OOM {text}; nothing was changed"
    if code is ErrorCode.NOT_ENOUGH_MEMBERS:
        return f"NOREPLICAS {text}; nothing was changed"
    if code in (ErrorCode.INDETERMINATE, ErrorCode.OWNERSHIP_LOST):
        return f"INDETERMINATE {text}; the write was perhaps applied: read before you repeat it"
    return f"TRYAGAIN {text}; nothing was changed"


def evaluated(grid: GridAccess, what: str, make: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns, or the error of RESP for what it raises. `what`: the command for which it is called."""
    try:
        return make(*arguments)
    except Exception as failure:
        return error_of(grid, what, failure)


def error_of(grid: GridAccess, what: str, failure: Exception) -> bytes:
    """Return the error of RESP for an exception of a command: every one comes here.

    One that nobody raised on purpose is counted and logged, and the client gets its class alone.
    """
    if isinstance(failure, UpdateRefused):
        return error(str(failure))
    if isinstance(failure, PhalanxError):
        return _error_of_grid(failure)
    grid.failed(what, failure)
    return error(f"ERR '{what}' failed in this member ({type(failure).__name__}); its log says more")


def _error_of_grid(failure: PhalanxError) -> bytes:
    text = str(failure)
    if isinstance(failure, GridFull):
        return error(f"OOM {text}")
    if isinstance(failure, NotEnoughMembers):
        return error(f"NOREPLICAS {text}")
    if isinstance(failure, IndeterminateWrite):
        return error(f"INDETERMINATE {text}")
    if isinstance(failure, ClientClosed) or (isinstance(failure, UnavailableError) and not failure.ended_members):
        return error(f"TRYAGAIN {text}")
    return error(f"ERR {text}")


def flag_of(reply: Any) -> int:
    """Return whether a request changed something, as 1 or 0."""
    if isinstance(reply, FlagReply):
        return int(reply.flag)
    if isinstance(reply, ValueReply):
        return int(reply.value is not None and reply.value[-1:] == b"\x01")
    return int(isinstance(reply, DoneReply))


def text_or_none(reply: ValueReply) -> bytes | None:
    """Return the text of the value in a reply. Raises `UpdateRefused` if it is not a string."""
    return None if reply.value is None else text_of(reply.value)


def count_of(reply: CountReply) -> int:
    """Return the count in a reply."""
    return reply.count
