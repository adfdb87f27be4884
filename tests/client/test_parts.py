"""A request in parts, some of which were refused for want of members: what that says of the whole."""

from typing import Any

import pytest

from phalanx.common.errors import ErrorCode
from phalanx.maps.requests import as_for_the_whole
from phalanx.wire import messages as m

DONE = m.DoneReply(1)
REFUSED = m.ErrorReply(2, ErrorCode.NOT_ENOUGH_MEMBERS, "too few")
MOVED = m.ErrorReply(3, ErrorCode.NOT_OWNER, "moved")


def codes(replies: list[Any]) -> list[ErrorCode | None]:
    return [reply.code if isinstance(reply, m.ErrorReply) else None for reply in replies]


@pytest.mark.rows("EL-48")
@pytest.mark.parametrize(
    ("replies", "is_first", "told"),
    [
        ([REFUSED], True, [ErrorCode.NOT_ENOUGH_MEMBERS]),
        ([REFUSED, REFUSED], True, [ErrorCode.NOT_ENOUGH_MEMBERS] * 2),
        ([REFUSED], False, [ErrorCode.INDETERMINATE]),
        ([DONE, REFUSED], True, [None, ErrorCode.INDETERMINATE]),
        ([REFUSED, MOVED], True, [ErrorCode.INDETERMINATE, ErrorCode.NOT_OWNER]),
        ([DONE, MOVED], False, [None, ErrorCode.NOT_OWNER]),
    ],
)
def test_a_refused_part_says_that_nothing_was_changed_only_where_nothing_can_have_been(
    replies: list[Any], is_first: bool, told: list[ErrorCode | None]
) -> None:
    assert codes(as_for_the_whole(replies, is_first=is_first)) == told
