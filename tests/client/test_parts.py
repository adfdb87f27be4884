"""A request in parts, some of which were refused for want of members: what that says of the whole."""

from typing import Any

import pytest

from phalanx.common.errors import ErrorCode
from phalanx.maps.requests import as_for_the_whole
from phalanx.wire import messages as m

DONE = m.DoneReply(1)
REFUSED = m.ErrorReply(2, ErrorCode.NOT_ENOUGH_MEMBERS, "too few")
MOVED = m.ErrorReply(3, ErrorCode.NOT_OWNER, "moved")
LOST = m.ErrorReply(4, ErrorCode.OWNERSHIP_LOST, "it had been sent")
UNREACHED = m.ErrorReply(5, ErrorCode.UNAVAILABLE, "nobody there")


def codes(replies: list[Any]) -> list[ErrorCode | None]:
    return [reply.code if isinstance(reply, m.ErrorReply) else None for reply in replies]


@pytest.mark.rows("EL-48")
@pytest.mark.parametrize(
    ("replies", "may_be_applied", "told", "may_be_done_then"),
    [
        ([REFUSED], False, [ErrorCode.NOT_ENOUGH_MEMBERS], False),
        ([REFUSED, REFUSED], False, [ErrorCode.NOT_ENOUGH_MEMBERS] * 2, False),
        ([REFUSED], True, [ErrorCode.INDETERMINATE], True),
        ([DONE, REFUSED], False, [None, ErrorCode.INDETERMINATE], True),
        ([REFUSED, MOVED], False, [ErrorCode.NOT_ENOUGH_MEMBERS, ErrorCode.NOT_OWNER], False),
        ([REFUSED, LOST], False, [ErrorCode.INDETERMINATE, ErrorCode.OWNERSHIP_LOST], True),
        ([UNREACHED, MOVED], False, [ErrorCode.UNAVAILABLE, ErrorCode.NOT_OWNER], False),
        ([UNREACHED, DONE], False, [ErrorCode.INDETERMINATE, None], True),
        ([UNREACHED], True, [ErrorCode.INDETERMINATE], True),
        ([DONE, MOVED], False, [None, ErrorCode.NOT_OWNER], True),
    ],
)
def test_a_refused_part_says_that_nothing_was_changed_only_where_nothing_can_have_been(
    replies: list[Any], may_be_applied: bool, told: list[ErrorCode | None], may_be_done_then: bool
) -> None:
    judged, may_be_applied = as_for_the_whole(replies, may_be_applied=may_be_applied)
    assert (codes(judged), may_be_applied) == (told, may_be_done_then)
