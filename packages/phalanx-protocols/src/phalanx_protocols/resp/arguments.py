"""Read the words of commands. Words that cannot be read are refused with Redis' own text."""

from __future__ import annotations

from typing import Final

from phalanx.common.ids import Millis
from phalanx.endpoints.protocol import GridAccess
from phalanx.grid.serving.update_results import UpdateRefused
from phalanx_protocols.redis_functions import LEAST, MOST, integer_of

SYNTAX: Final = "ERR syntax error"
MAX_LIFE_MS: Final = 10 * 366 * 24 * 3_600_000
"""The longest time to live, in milliseconds: of all maps."""
FACTORS: Final = {b"EX": 1000, b"PX": 1, b"EXAT": 1000, b"PXAT": 1}


def syntax_error() -> UpdateRefused:
    """Return the refusal of words that are not understood."""
    return UpdateRefused(SYNTAX)


def life_of(grid: GridAccess, unit: bytes, word: bytes, command: str) -> Millis:
    """Return the milliseconds from now that a time stands for; 0 or less: it is over. Raises `UpdateRefused`.

    `unit`: EX and PX count from now, EXAT and PXAT from 1970; EX and EXAT are seconds.
    """
    number = integer_of(word) * FACTORS[unit]
    if not LEAST <= number <= MOST:
        raise UpdateRefused(f"ERR invalid expire time in '{command}' command")
    life_ms = number - grid.wall_ms() if unit.endswith(b"AT") else number
    if life_ms > MAX_LIFE_MS:
        raise UpdateRefused(f"ERR invalid expire time in '{command}' command: it is more than ten years from now")
    return life_ms


def positive_life(grid: GridAccess, unit: bytes, word: bytes, command: str) -> Millis:
    """Return the milliseconds from now that a time stands for, at least 1. Raises `UpdateRefused` also for a number of
    0 or less.
    """
    if integer_of(word) <= 0:
        raise UpdateRefused(f"ERR invalid expire time in '{command}' command")
    return max(life_of(grid, unit, word, command), 1)
