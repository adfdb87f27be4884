"""A history in words: what happened, line by line, for people."""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.rules import cite
from phalanx.wire.event import Event


def short(text: str) -> str:
    """Shorten a member's name: its host and the beginning of its incarnation."""
    return text.replace(":5701/", "/").replace("10.0.0.", "h")


class Story:
    """Lines of one history; keeps none unless asked to."""

    def __init__(self, is_kept: bool) -> None:
        self.is_kept = is_kept
        self.lines: list[str] = []

    def tell(self, now: Millis, who: str, what: str) -> None:
        if self.is_kept:
            self.lines.append(f"{now:>7} {short(who)[:8]:<8} {short(what)}")

    def tell_event(self, now: Millis, member: MemberId, event: Event) -> None:
        if self.is_kept:
            fields = ", ".join(
                f"{name}={_field_in_words(name, getattr(event, name))}" for name in event.__struct_fields__
            )
            self.tell(now, member, f"{type(event).__name__}({fields})")


def _field_in_words(field: str, value: object) -> str:
    """Return a field of an event in words; of a rule its sentence, with its id behind it."""
    return cite(value) if field == "rule" and isinstance(value, str) and value else _shown(value)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + " ".join(_shown(each) for each in value) + "]"
    text = str(value)
    slash = text.find("/")
    return text[: slash + 5] if slash > 0 and len(text) - slash == 37 else text
