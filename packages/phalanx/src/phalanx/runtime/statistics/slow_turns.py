"""Count the turns of a member that took long, and log from time to time one of them with its input.

While a member works at one input it receives nothing, sends no heartbeat and answers nothing. Work that grows with the
data is done in parts. So a long turn shows work that is not, or a machine that has no time for the member.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from phalanx.machine.inputs import Call, Input, Received, ReceivedTogether
from phalanx.runtime.logs.safe_logger import SafeLogger

logger = SafeLogger("phalanx.member")

TELL_AGAIN_S = 10.0
"""The shortest time between two log lines."""
NEVER_S = float("inf")
SHOWN_CHARACTERS = 60
"""The most characters that are shown of a name from outside."""


class SlowTurns:
    """The turns of one member that took longer than `slow_turn_warning_ms`. See `Member.slow_turns`."""

    def __init__(self, warning_ms: int) -> None:
        self.limit_s = warning_ms / 1000 if warning_ms else NEVER_S
        """A turn that takes longer, in seconds, is counted."""
        self.total = 0
        """How many turns took longer."""
        self.longest_s = 0.0
        """The length of the longest turn, in seconds."""
        self._untold = 0
        """How many such turns there were since the one in the last log line."""
        self._logged_s = -NEVER_S

    def note(self, address: str, event: Input, took_s: float, now_s: float) -> None:
        """Count a turn that was too long, and log it if a line is due. The times are of one clock, in seconds."""
        self.total += 1
        self.longest_s = max(self.longest_s, took_s)
        if now_s - self._logged_s < TELL_AGAIN_S:
            self._untold += 1
            return
        others = f" ({self._untold} more since the last such line)" if self._untold else ""
        self._logged_s, self._untold = now_s, 0
        logger.warning(
            "%s was busy for %d ms with one input, and read no messages meanwhile: %s%s",
            address, took_s * 1000, described(event), others,
        )  # fmt: skip


def described(event: Input) -> str:
    """Return an input in a few words: its kind, its sender, its map and partitions."""
    if isinstance(event, ReceivedTogether):
        kinds = Counter(type(message).__name__ for message in event.messages)
        messages = ", ".join(f"{count} {name}" for name, count in kinds.most_common(3))
        return f"{messages} of {_shown(event.sender)}"
    if isinstance(event, Received):
        return f"{_named(event.message)} of {_shown(event.sender)}"
    if isinstance(event, Call):
        return f"{_named(event.request)} of this program"
    return type(event).__name__


def _named(message: Any) -> str:
    words = [type(message).__name__]
    if (name := getattr(message, "map", None)) is not None:
        words.append(f"map {_shown(name)}")
    if (function := getattr(message, "function", None)) is not None:
        words.append(f"function {_shown(function)}")
    if (partition := getattr(message, "partition", None)) is not None:
        words.append(f"partition {partition}")
    for field in ("keys", "partitions", "parts"):
        if (several := getattr(message, field, None)) is not None:
            words.append(f"{len(several)} {field}")
    return ", ".join(words)


def _shown(text: str) -> str:
    """Return a text in a form that fits one line: a text from outside can contain anything."""
    return ascii(text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}...")
