"""The small words of the scenario language: names, ways, durations."""

from __future__ import annotations

import re
from collections.abc import Sequence

from phalanx.common.ids import Millis
from phalanx.wire import messages
from phalanx_proof.sim.scenario.errors import wrong

NAME = re.compile(r"[A-Za-z][A-Za-z_-]*")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|h)")
_UNITS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000}


def words(text: str) -> list[str]:
    """Split a text at spaces and commas."""
    return [word for word in re.split(r"[\s,]+", text.strip()) if word]


def letters(count: int) -> list[str]:
    """Return names for so many hosts: A to Z, then AA, AB and so on."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return [(alphabet[n // 26 - 1] if n >= 26 else "") + alphabet[n % 26] for n in range(count)]


def hosts(text: str, known: Sequence[str]) -> list[str]:
    """Parse one or several hosts of the scenario; `*`: all."""
    if text.strip() == "*":
        return list(known)
    found = words(text)
    for name in found:
        if name not in known:
            raise wrong(f"one of the hosts {' '.join(known)}", name)
    if not found:
        raise wrong("one or several hosts")
    return found


def host(text: str, known: Sequence[str]) -> str:
    """Parse exactly one host."""
    found = hosts(text, known)
    if len(found) != 1:
        raise wrong("one host", text)
    return found[0]


def one_way(text: str, known: Sequence[str]) -> list[tuple[str, str]]:
    """Parse `A B > C`: from each on the left to each on the right."""
    left, arrow, right = text.partition(">")
    if not arrow:
        raise wrong("a way, for example A > B", text.strip())
    senders, receivers = hosts(left, known), hosts(right, known)
    return [(one, other) for one in senders for other in receivers if one != other]


def sides(text: str, known: Sequence[str]) -> list[tuple[str, str]]:
    """Parse `A B | C D`: each on the left with each on the right; with more bars, all sides with one another."""
    parts = [hosts(part, known) for part in text.split("|")]
    if len(parts) < 2:
        raise wrong("sides, for example A B | C", text.strip())
    return [
        (one, other)
        for number, side in enumerate(parts)
        for further in parts[number + 1 :]
        for one in side
        for other in further
        if one != other
    ]


def duration(text: str) -> Millis:
    """Parse `500ms`, `10s`, `1.5s`, `2min`."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise wrong("a duration such as 500ms, 10s or 2min", text.strip())
    return round(float(match[1]) * _UNITS[match[2]])


def message_kinds(text: str) -> frozenset[str]:
    """Parse kinds of messages, by their names in `wire/messages.py`."""
    found = words(text)
    for kind in found:
        if not is_message_kind(kind):
            raise wrong("a kind of message such as MembersUpdate or Heartbeat", kind)
    return frozenset(found)


def is_message_kind(text: str) -> bool:
    return isinstance(getattr(messages, text, None), type)


def number(text: str, what: str) -> int:
    if not text.isdecimal():
        raise wrong(what, text)
    return int(text)
