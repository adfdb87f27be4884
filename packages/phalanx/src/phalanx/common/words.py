"""Messages for people: counts with their nouns, and text from outside in a form that can be shown.

A name, a key, a reason that a peer sent can hold anything: ends of lines that forge a log line, escape sequences that
drive a terminal, marks that turn the reading direction. Whatever shows such text passes it through `shown` or `quoted`.
"""

from __future__ import annotations

import re
import reprlib

from phalanx.common.errors import UsageError

LONG_BITS = 14_000
"""An int of more bits is not written in decimal: Python refuses to above 4,300 digits, as that takes quadratic time."""
UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Characters that act instead of being shown: control characters (C0, DEL, C1), ends of lines and paragraphs, marks of direction,
invisible format characters, and lone surrogates, which no output can encode."""


def counted(count: int, thing: str, things: str = "") -> str:
    """Return a number with its noun: `1 entry`, `2,000 entries`. `things`: the plural, if it does not only add an s."""
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


def shown(text: str, limit: int = 0) -> str:
    r"""Return the text on one line. Escapes (`\n`, `\x1b`, `\u202e`) replace characters that would act instead of being shown.

    `limit`: the most characters to show, before the length of the text; 0: all.
    """
    if limit and len(text) > limit:
        return f"{shown(text[:limit])}… ({len(text):,} characters)"
    return text if text.isprintable() else UNSAFE.sub(_escape, text)


def quoted(value: object, limit: int = 200) -> str:
    """Return the value as Python writes it, on one line and never longer than about `limit`; for messages of errors."""
    if isinstance(value, int) and value.bit_length() > LONG_BITS:
        return f"<int of {value.bit_length():,} bits>"
    if isinstance(value, str):
        return f"{value[:limit]!r}… ({len(value):,} characters)" if len(value) > limit else repr(value)
    try:
        return shown(_reprs.repr(value), limit)
    except Exception:  # raised by a class of the caller's, or for a long int in it: Python does not write it in decimal
        return f"<{type(value).__name__}>"


def check_text(text: str, what: str) -> str:
    """Return the text if it is Unicode, as everything that members receive must be. Raises `UsageError`, which names it `what`."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"{what}: {quoted(text)} holds a lone surrogate at index {error.start}, so it is not Unicode text: it comes "
                "from bytes that were not UTF-8, as of a command line or a file's name in another encoding"
            ) from None
    return text


_reprs = reprlib.Repr()
_reprs.maxstring = _reprs.maxother = _reprs.maxlong = 200


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
