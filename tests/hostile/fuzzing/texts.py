"""Inputs as text: one part to a line, as bytes of Python, in which what is repeated stands once.

    b'\\x00\\x00MP' + b'\\x81\\xa1a' * 3000 + b'\\xc0'
    300 of b'*2\\r\\n$3\\r\\nGET\\r\\n$1\\r\\nf\\r\\n'

Lines that begin with `#` are for readers.
"""

from __future__ import annotations

import ast
import re
from itertools import groupby

from hostile.fuzzing.target import Case

MOST_UNIT = 64
"""The longest run of bytes whose repetition is looked for."""
WORTHWHILE = 48
"""Bytes of a repetition that is written as one."""
LONGEST = 256 * 1024 * 1024


def to_text(case: Case, about: str = "") -> str:
    """Return an input as text, below some lines about it."""
    lines = [f"# {line}".rstrip() for line in about.splitlines()]
    for part, same in groupby(case):
        count = len(list(same))
        lines.append((f"{count} of " if count > 1 else "") + _terms(part))
    return "\n".join(lines) + "\n"


def from_text(text: str) -> Case:
    """Return the input that a text holds. Raises `ValueError` for another text."""
    case: Case = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            found = re.match(r"(\d+) of ", line)
            times, rest = (int(found[1]), line[found.end() :]) if found else (1, line)
            try:
                case += [_value(ast.parse(rest.strip(), mode="eval").body)] * times
            except (SyntaxError, ValueError) as error:
                raise ValueError(f"line {number} is no part of an input: {error}") from None
    return case


def _value(node: ast.expr) -> bytes:
    if isinstance(node, ast.Constant) and isinstance(node.value, bytes):
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _value(node.left) + _value(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.right, ast.Constant):
        unit, times = _value(node.left), node.right.value
        if type(times) is int and 0 <= times * len(unit) <= LONGEST:
            return unit * times
    raise ValueError("only bytes, + and * are read")


def _terms(data: bytes) -> str:
    terms, plain, at = [], 0, 0
    while at < len(data):
        unit, times = _repetition(data, at)
        if not times:
            at += 1
            continue
        if plain < at:
            terms.append(repr(data[plain:at]))
        terms.append(f"{unit!r} * {times}")
        plain = at = at + len(unit) * times
    if plain < at or not terms:
        terms.append(repr(data[plain:]))
    return " + ".join(terms)


def _repetition(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the unit that is repeated from here on, and how often; 0: none is, or it does not pay."""
    for size in range(1, min(MOST_UNIT, (len(data) - at) // 2) + 1):
        unit = data[at : at + size]
        if data[at + size : at + 2 * size] != unit:
            continue
        times = 2
        while data.startswith(unit, at + size * times):
            times += 1
        if size * times >= WORTHWHILE:
            return unit, times
    return b"", 0
