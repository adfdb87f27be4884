"""Which members ended while they served one call: a request can be the cause, by an input that no code expects.

A member is lost if its connection broke, or it left the member list, while it could have the request. It has ended when
the newest known list lacks it: until then possibly only a connection has broken. When two have ended, one after the
other, the call is not sent to a third: all members could end so, and with them all data.
"""

from __future__ import annotations

from collections.abc import Set

from phalanx.common.errors import ErrorCode
from phalanx.common.ids import Lost, MemberId
from phalanx.wire.messages import ErrorReply

MOST_ENDED = 2
"""Under how many members that end a call can be asked again, and no more."""
TWO_ENDED = "two members ended while they served this"
"""So begins what is told of a call under which they did."""


def ended_in_turn(lost: Lost, members: Set[MemberId] | None) -> tuple[str, ...]:
    """Return the first member of each round of `lost` that has ended, and did not end in a round before.

    `members`: those of the newest list; None: no list is known, and all that are lost count.
    """
    ended: list[str] = []
    for together in lost:
        found = [each for each in together if each not in ended and (members is None or each not in members)]
        ended += found[:1]
    return tuple(ended)


def has_ended_members(reply: ErrorReply) -> bool:
    """Return whether a call failed because members ended while they served it: it must not be sent again."""
    return len(reply.lost) >= MOST_ENDED


def ended_reply(request_id: int, ended: tuple[str, ...], *, is_write: bool) -> ErrorReply:
    """Return the answer to a call under which these members have ended."""
    outcome = "it was perhaps applied, and " if is_write else ""
    text = (
        f"{TWO_ENDED}, {ended[0]} and {ended[1]}; it is not asked of another: {outcome}their logs say "
        f"why, look there before you repeat it"
    )
    return ErrorReply(
        request_id, ErrorCode.INDETERMINATE if is_write else ErrorCode.UNAVAILABLE, text, ended[:MOST_ENDED]
    )
