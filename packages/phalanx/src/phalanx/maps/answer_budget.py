"""What one answer can have: every list of answers that a member makes for a client of another system is built with a budget.

A list can have the same value hundreds of times, and one of thousands of large values is asked for in a few bytes. So what was
found is counted as often as the list has it, before it is copied into the list; and nothing of an answer is sent before all of it is
there.
"""

from __future__ import annotations

from phalanx.common.errors import UsageError


class AnswerTooLarge(UsageError):
    """An answer would have more bytes than the member makes for one. Nothing of it was sent: ask for less at once."""


class AnswerBudget:
    """How many bytes one answer can still have."""

    __slots__ = ("_most", "left")

    def __init__(self, most: int) -> None:
        self._most = most
        self.left = most

    def take(self, size: int) -> None:
        """Count bytes of the answer. Raises `AnswerTooLarge` where these are too many."""
        self.left -= size
        if self.left < 0:
            raise AnswerTooLarge(
                f"the answer has more than {self._most} bytes (max_answer_bytes): ask for less at once"
            )
