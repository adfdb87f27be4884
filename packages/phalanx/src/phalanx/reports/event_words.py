"""Events in words: the sentence of each decision of a member, for its log, for `phalanx why` and for the console.

The sentences stand beside the classes of the events (`wire/event.py`: `Notice`). Here the fields are put into them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import ValidationError, convert
from msgspec.structs import asdict

from phalanx.common.ids import MemberId, address_of, may_be_member
from phalanx.common.map_settings import Protection
from phalanx.common.words import counted
from phalanx.wire.event import Either, Event, EventGroup, Level, Notice
from phalanx.wire.events import EVENT_KINDS

MOST_NUMBERS = 20
"""How many numbers a sentence lists at most."""

_OPTIONAL = re.compile(r"\[(.*?)\]")
_FIELD = re.compile(r"{(\w+)")
_IN_VIEW = "(member list {})"

NameMember = Callable[[MemberId], str]
"""Returns the text for a member."""


def level_of(event: Event) -> Level:
    """Return the log level of an event, whatever came before it."""
    return _notice_of(type(event), asdict(event)).level


def in_words(event: Event) -> str:
    """Return the sentence with its reason, without its subject (the member)."""
    fields = asdict(event)
    said, reason = _fill(_notice_of(type(event), fields).sentence, fields), fields.get("reason")
    return f"{said}: {reason}" if reason else said


def log_line(event: Event, this: str) -> str:
    """Return the line that this kind of event has in the log of the member `this`; empty: its sentence is the line."""
    fields = asdict(event)
    line = _notice_of(type(event), fields).log
    return line and _fill(line, fields | {"this": this})


def read_event(kind: str, fields: Mapping[str, Any]) -> Event | None:
    """Return an event that was read from JSON; None: it is another version's, or lacks a field."""
    try:
        return convert(fields, EVENT_KINDS[kind])
    except (KeyError, ValidationError):
        return None


def sentence_of(
    kind: str, fields: Mapping[str, Any], name: NameMember = address_of, in_view: str = _IN_VIEW
) -> str | None:
    """Return the decision in words, without the reason; None: another version's event, or a field is missing.

    `in_view`: the text for the version of a member list.
    """
    notice = find_notice(kind, fields)
    try:
        return _fill(notice.sentence, fields, name, in_view) if notice is not None else None
    except KeyError:
        return None


def group_of(kind: str, fields: Mapping[str, Any]) -> EventGroup:
    """Return the mark that an event has in the console."""
    notice = find_notice(kind, fields)
    if notice is None:
        return EventGroup.MOVE if "partition" in fields else EventGroup.OTHER
    return notice.group


def find_notice(kind: str, fields: Mapping[str, Any]) -> Notice | None:
    """Return the notice of an event that was read; None: another version's event, or the field that decides is missing."""
    try:
        return _notice_of(EVENT_KINDS[kind], fields)
    except KeyError:
        return None


def _notice_of(kind: type[Event], fields: Mapping[str, Any]) -> Notice:
    notice = kind.notice
    return notice.choose(_more_words(fields)) if isinstance(notice, Either) else notice


def _fill(form: str, fields: Mapping[str, Any], name: NameMember = address_of, in_view: str = _IN_VIEW) -> str:
    known = _more_words(fields, in_view)
    form = _OPTIONAL.sub(lambda part: part[1] if all(map(known.get, _FIELD.findall(part[1]))) else "", form)
    return form.format_map({field: _Shown(value, name) for field, value in known.items()})


class _Shown:
    """A field's value, with the formats that sentences use."""

    def __init__(self, value: Any, name: NameMember) -> None:
        self._value, self._name = value, name

    def __format__(self, form: str) -> str:
        value = self._value
        if form == "s":
            return f"{value / 1000:.1f} s"
        if form == "MiB":
            return f"{value / 2**20:,.1f} MiB"
        if form == "#":
            return str(len(value))
        if form:
            return counted(len(value) if is_many(value) else value, *form.split("/"))
        return show_value(value, self._name)


def is_many(value: object) -> bool:
    """Return whether a field has several values: a tuple in an event, a list in an event that was read from JSON."""
    return isinstance(value, (list, tuple))


def show_value(value: Any, name: NameMember) -> str:
    """Return a field's value in words."""
    if is_many(value):
        is_long = len(value) > MOST_NUMBERS and isinstance(value[0], int)
        listed = [show_value(each, name) for each in (value[:MOST_NUMBERS] if is_long else value)]
        return ", ".join([*listed, "..."] if is_long else listed) or "nobody"
    return name(MemberId(value)) if isinstance(value, str) and may_be_member(value) else str(value)


def _more_words(fields: Mapping[str, Any], in_view: str = _IN_VIEW) -> dict[str, Any]:
    """Return the fields of an event, and further words for sentences that are made from them."""
    known = {**fields, "in_view": in_view.format(fields.get("view_version"))}
    if "table_version" in fields:
        known["in_table"] = f"(partition table ver {fields['table_version']})"
    if "map" in fields:
        known["which"] = f"map {fields['map']}" if fields["map"] not in ("", "*") else "all other maps"
    if "majority" in fields:
        protection = Protection(*(fields[name] for name in ("minimum", "majority", "reads", "writes")))
        known["of_what"], known["wish"] = protection.of_what, str(protection) if protection.is_on else ""
    return known
