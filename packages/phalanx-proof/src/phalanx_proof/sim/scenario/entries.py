"""How scenarios write keys and values: `x=1`, and `k1..20=v` for twenty keys in a row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from phalanx_proof.sim.scenario.errors import wrong

TEXT = b"\xff\xff\xff\xf5"
"""The type id of a text: what keys and values begin with."""
_RANGE = re.compile(r"([A-Za-z_]+)(\d+)\.\.(\d+)")
_NUMBERED = re.compile(r"([A-Za-z_]+)(\d+)")


def encode(text: str) -> bytes:
    """Return a key or value as a program would serialise the text."""
    return TEXT + text.encode()


def decode(data: bytes) -> str:
    """Return the text of a serialised key or value; of anything else, only how long it is."""
    return data.removeprefix(TEXT).decode(errors="replace") if data.startswith(TEXT) else f"{len(data)} bytes"


def keys(words: Sequence[str]) -> list[str]:
    """Parse keys: `x k1..3` is x, k1, k2 and k3."""
    found: list[str] = []
    for word in words:
        if match := _RANGE.fullmatch(word):
            name, first, last = match.groups()
            found += [f"{name}{number}" for number in range(int(first), int(last) + 1)]
        else:
            found.append(word)
    if not found:
        raise wrong("one or several keys, such as x y or k1..20")
    return found


def pairs(words: Sequence[str]) -> list[tuple[str, str]]:
    """Parse keys with values: `x=1 k1..3=v`."""
    found: list[tuple[str, str]] = []
    for word in words:
        names, equals, value = word.partition("=")
        if not equals or not names:
            raise wrong("a key and a value, such as x=1 or k1..20=v", word)
        found += [(name, value) for name in keys([names])]
    if not found:
        raise wrong("keys and values, such as x=1 or k1..20=v")
    return found


def shown(entries: Iterable[tuple[str, str]]) -> str:
    """Return entries in the order of their keys, those alike whose numbers follow one another as one: `k1..3=v x=1`.

    An entry is a key and what stands behind it, such as `=1`.
    """
    runs: list[tuple[str, int, int, str]] = []
    for prefix, number, behind in sorted((*_parts(key), behind) for key, behind in entries):
        last = runs[-1] if runs else None
        if last is not None and number > 0 and (last[0], last[2] + 1, last[3]) == (prefix, number, behind):
            runs[-1] = (prefix, last[1], number, behind)
        else:
            runs.append((prefix, number, number, behind))
    return " ".join(_run(*run) for run in runs) or "nothing"


def _parts(key: str) -> tuple[str, int]:
    match = _NUMBERED.fullmatch(key)
    return (match[1], int(match[2])) if match is not None and str(int(match[2])) == match[2] else (key, -1)


def _run(prefix: str, first: int, last: int, behind: str) -> str:
    if first < 0:
        return prefix + behind
    return f"{prefix}{first}{behind}" if first == last else f"{prefix}{first}..{last}{behind}"
