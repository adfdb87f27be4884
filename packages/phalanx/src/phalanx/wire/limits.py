"""Limits on the lists and texts of one request, checked while a frame is decoded, before anything is built from it.

A decoder checks the length of a list where the frame announces it, so a frame of 64 MiB that announces sixty million
numbers costs nothing. Every list and text of every request has such a limit; a test goes through the union of requests.
Where the work of a request grows with something else (the partitions that there are, the rows in a page), its handler
checks that before it does anything. docs/resources.md lists all limits in one table.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from phalanx.common.map_settings import Text

MAX_PLAIN_FRAME_BYTES = 4 * 1024 * 1024
"""Longest frame of a request without keys and values. (Others have the limit of any frame.)"""
MAX_KEYS = 20_000
"""Entries in one request: some ten milliseconds of the owner's time. Callers cut theirs well below it."""
MAX_ROWS = 20_000
"""Packed rows in one request that stores them as entries, or in one page of rows that are staged as they are."""
MAX_PARTITIONS_NAMED = 1_000_000
"""Partitions named in one request; its handler accepts no more than there are."""
MAX_CONDITIONS = 64
"""Conditions in one scan."""
MAX_LITERALS = 10_000
"""Literals in all conditions of one scan together: they are decoded for each page."""
MAX_LITERAL_BYTES = 1024 * 1024
"""Bytes of literals in all conditions of one scan together."""
MAX_PATH = 32
"""Names in the path from a value to a nested field."""
JUDGED_BYTES = 256 * 1024
"""Bytes of the longest stored value, with its stamp, on which owners evaluate conditions. They send longer values
unfiltered, and the caller filters them."""
MAX_ATTEMPTS = 50_000
"""Most attempts in one request for a staging step, and most attempts times partitions: the owner looks up each attempt
in each partition."""

MAX_ARGUMENTS = 64
"""Arguments of the function of an `UpdateValue`."""

MAX_PERMITS = 1_000
"""Permits of a semaphore: the state that each acquisition replicates names every holder."""
MAX_HOLDER_LENGTH = 200
"""Characters in the name of a lock's holder."""
MAX_LEASE_MS = 24 * 3_600_000
"""The longest lease of a lock, in milliseconds."""
MAX_LOCK_WAIT_MS = 60_000
"""How long an owner keeps a caller waiting for a lock before it answers, in milliseconds; callers ask again."""

Arguments = Annotated[list[bytes], Meta(max_length=MAX_ARGUMENTS)]
"""Serialised values."""
Keys = Annotated[list[bytes], Meta(max_length=MAX_KEYS)]
Numbers = Annotated[list[int], Meta(max_length=MAX_KEYS)]
"""One number for each key of the request."""
Partitions = Annotated[list[int], Meta(max_length=MAX_PARTITIONS_NAMED)]
Texts = Annotated[list[Text], Meta(max_length=MAX_ATTEMPTS)]
PageNumbers = Annotated[
    tuple[Annotated[tuple[int, ...], Meta(max_length=MAX_ATTEMPTS)], ...], Meta(max_length=MAX_ATTEMPTS)
]
"""For each attempt, one page number for each partition of the request."""
Path = Annotated[tuple[Text, ...], Meta(max_length=MAX_PATH)]
Literals = Annotated[tuple[bytes, ...], Meta(max_length=MAX_LITERALS)]

__all__ = [
    "JUDGED_BYTES",
    "MAX_ARGUMENTS",
    "MAX_ATTEMPTS",
    "MAX_CONDITIONS",
    "MAX_HOLDER_LENGTH",
    "MAX_KEYS",
    "MAX_LEASE_MS",
    "MAX_LITERALS",
    "MAX_LITERAL_BYTES",
    "MAX_LOCK_WAIT_MS",
    "MAX_PARTITIONS_NAMED",
    "MAX_PATH",
    "MAX_PERMITS",
    "MAX_PLAIN_FRAME_BYTES",
    "MAX_ROWS",
    "Arguments",
    "Keys",
    "Literals",
    "Numbers",
    "PageNumbers",
    "Partitions",
    "Path",
    "Text",
    "Texts",
]
