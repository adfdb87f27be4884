"""Where else an entry can be that was not found: under a key of another type, or in a map of a similar name.

A hint is for people, and costs one request: where it cannot be had, there is none.
"""

from __future__ import annotations

import difflib
from typing import Any

from phalanx.cli.output import as_cell
from phalanx.client.blocking.sync_map import SyncMap
from phalanx.codec.values import to_key_data
from phalanx.common.errors import PhalanxError, UsageError
from phalanx.common.words import counted, quoted, shown
from phalanx.reports.entries import KeyType, readings

SHOWN_NAMES = 10


def find_elsewhere(entries: SyncMap[Any, Any], text: str, kind: KeyType) -> str:
    """Look for entries whose keys have another type but the same text, and say how to ask for them; empty: there are none."""
    meant = readings(text)
    options = {to_key_data(meant[kind]): ""}
    if kind is not KeyType.BYTES and text.isprintable() and text.isascii():
        # As text: a caller who asks in hexadecimal would know it.
        options[to_key_data(text.encode())] = f"the bytes of this text: give {text.encode().hex()} --key-type bytes"
    for other, key in meant.items():
        try:
            options.setdefault(to_key_data(key), f"the {other.value} {as_cell(key)}: give --key-type {other.value}")
        except UsageError:  # nothing that could be a key: a dict, NaN
            continue
    try:
        present = entries.get_data(list(options))
    except PhalanxError:
        return ""
    found = [hint for hint, data in zip(options.values(), present, strict=True) if hint and data is not None]
    return f"it has one for {'; and for '.join(found)}" if found else ""


def find_no_map(entries: SyncMap[Any, Any]) -> str:
    """Say that no map of this name has entries, and name those that have, the most similar first; empty: this one
    has."""
    names = _others(entries)
    if names is None:
        return ""
    similar = difflib.get_close_matches(entries.name, names, SHOWN_NAMES)
    listed = list(dict.fromkeys([*similar, *names]))
    more = f" and {counted(len(listed) - SHOWN_NAMES, 'more', 'more')}" if len(listed) > SHOWN_NAMES else ""
    there = ", ".join(shown(name) for name in listed[:SHOWN_NAMES])
    what = f"there are: {there}{more}" if names else "no map has any"
    return f"there is no map {quoted(entries.name)} with entries; {what}"


def find_misspelt(entries: SyncMap[Any, Any]) -> str:
    """Name the maps that may have been meant by one that has no entries; empty: it has, or no name is similar."""
    similar = difflib.get_close_matches(entries.name, _others(entries) or (), SHOWN_NAMES)
    meant = ", ".join(map(shown, similar))
    return f"map {quoted(entries.name)} has no entries yet; if another one was meant: {meant}" if similar else ""


def _others(entries: SyncMap[Any, Any]) -> list[str] | None:
    """Return the maps that have entries; None: this one has, or nobody answers."""
    try:
        names = entries.client.map_names()
    except PhalanxError:
        return None
    return None if entries.name in names else names
