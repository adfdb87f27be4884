"""Why a member was removed or is suspected, in a plain sentence, made from the reason that a failure detector has recorded."""

from __future__ import annotations

import re
from typing import Final

CAUSES: Final = (
    (
        re.compile(r"connection lost, and no process listens"),
        "its process has ended: nobody listens at its address any more",
    ),
    (
        re.compile(r"connection lost, and refused for (\d+) ms"),
        "its connection was lost, and new ones were refused for {} s",
    ),
    (re.compile(r"no heartbeat for (\d+) ms"), "it was silent for {} s"),
    (re.compile(r"no master confirmation for (\d+) ms"), "it did not follow the master for {} s"),
)
"""What a reason begins with, and what it means. Times in words are seconds."""


def cause_of(reason: str) -> str:
    """Return the cause in a plain sentence; the reason itself where no plainer one is known."""
    for pattern, cause in CAUSES:
        if (found := pattern.match(reason)) is not None:
            return cause.format(*(f"{int(time_ms) / 1000:.1f}" for time_ms in found.groups()))
    return reason


def with_reason(cause: str, reason: str) -> str:
    """Return the reason in parentheses, to stand behind the sentence; empty: the cause says all of it."""
    return f" ({reason})" if reason and reason != cause else ""
