"""How much one request may name: limits that hold while a frame is decoded, before anything is made of it.

A decoder checks the length of a list where the frame announces it, so a frame of 64 MiB that announces sixty million
numbers costs nothing. Every list and text of every request has such a limit; a test goes through the union of requests.
Where the work of a request grows with something else (the partitions that there are, the rows in a page), its handler
checks that before it does anything. All of it stands in one table in docs/resources.md.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from phalanx.common.map_settings import Text

MAX_PLAIN_FRAME_BYTES = 4 * 1024 * 1024
"""Of one request that carries neither keys nor values. (The others end at the limit of any frame.)"""
MAX_KEYS = 20_000
"""Entries in one request: some ten milliseconds of the owner's time. Callers cut theirs well below it."""
MAX_ROWS = 20_000
"""Packed rows in one request that makes them entries; of those that are staged, which wait as they are, in one page."""
MAX_PARTITIONS_NAMED = 1_000_000
"""In one request; its handler takes no more than there are."""
MAX_CONDITIONS = 64
"""In one scan."""
MAX_LITERALS = 10_000
"""In all conditions of one scan together: each page's request decodes them."""
MAX_LITERAL_BYTES = 1024 * 1024
"""In all conditions of one scan together."""
MAX_PATH = 32
"""Names on the way from a value to one of its fields."""
JUDGED_BYTES = 256 * 1024
"""Of a stored value, with its stamp: members send those that are longer whatever the conditions are, and who asked judges
them."""
MAX_ATTEMPTS = 50_000
"""In one request for a step, and attempts times partitions: each is looked up in each partition."""

Keys = Annotated[list[bytes], Meta(max_length=MAX_KEYS)]
Numbers = Annotated[list[int], Meta(max_length=MAX_KEYS)]
"""One for each key."""
Partitions = Annotated[list[int], Meta(max_length=MAX_PARTITIONS_NAMED)]
Texts = Annotated[list[Text], Meta(max_length=MAX_ATTEMPTS)]
PageNumbers = Annotated[
    tuple[Annotated[tuple[int, ...], Meta(max_length=MAX_ATTEMPTS)], ...], Meta(max_length=MAX_ATTEMPTS)
]
Path = Annotated[tuple[Text, ...], Meta(max_length=MAX_PATH)]
Literals = Annotated[tuple[bytes, ...], Meta(max_length=MAX_LITERALS)]

__all__ = [
    "JUDGED_BYTES",
    "MAX_ATTEMPTS",
    "MAX_CONDITIONS",
    "MAX_KEYS",
    "MAX_LITERALS",
    "MAX_LITERAL_BYTES",
    "MAX_PARTITIONS_NAMED",
    "MAX_PATH",
    "MAX_PLAIN_FRAME_BYTES",
    "MAX_ROWS",
    "Keys",
    "Literals",
    "Numbers",
    "PageNumbers",
    "Partitions",
    "Path",
    "Text",
    "Texts",
]
