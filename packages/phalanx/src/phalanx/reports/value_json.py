"""Any key or value as JSON, for people and machines: the command line and the console show the same."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from phalanx.common.words import LONG_BITS, UNSAFE
from phalanx.reports.entries import Undecodable

MAX_DEPTH: Final = 200
"""Containers within containers that are shown: as many as a value can have that this version stores."""
_AS_THEY_ARE: Final = frozenset([type(None), bool, str])


def as_json(value: Any) -> str:
    """Write any value that a map can hold as JSON that every parser reads.

    Values without a form in JSON become text: NaN and infinite numbers by their names, ints of more than about 4,200 digits in
    hexadecimal. A map becomes a list of pairs if two of its keys would be the same text. Control characters are always escaped.
    """
    plain = _plain(value)
    try:
        text = msgspec.json.encode(plain).decode()
    except UnicodeEncodeError:  # a lone surrogate, as of a path or an argument
        text = json.dumps(msgspec.to_builtins(plain, str_keys=True), separators=(",", ":"))
    return text if text.isprintable() else UNSAFE.sub(_json_escape, text)


def as_text(value: Any) -> str:
    """Return a value for people: text as it is, with line ends and tabs, if a terminal can show it; all else as JSON."""
    if isinstance(value, str):
        return as_json(value) if UNSAFE.search(value.replace("\n", "").replace("\t", "")) else value
    return value.in_words() if isinstance(value, Undecodable) else as_json(value)


def _json_escape(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]


def _plain(value: Any, depth: int = 0) -> Any:
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, int):
        return hex(value) if value.bit_length() > LONG_BITS else value
    if isinstance(value, float):
        return (
            value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        )
    if isinstance(value, (dict, list, tuple, Mapping)) and depth > MAX_DEPTH:
        return "(nested too deeply to be shown)"
    if isinstance(value, (list, tuple)):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, (dict, Mapping)):
        plain = {key if isinstance(key, str) else as_text(key): _plain(item, depth + 1) for key, item in value.items()}
        if len(plain) < len(value):
            return [[_plain(key, depth + 1), _plain(item, depth + 1)] for key, item in value.items()]
        return plain
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, (str, dt.date, dt.time, dt.timedelta, Decimal, UUID)):
        return value
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name), depth + 1) for name in value.__struct_fields__}
    return str(value)
