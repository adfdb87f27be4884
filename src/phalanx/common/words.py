"""Numbers and what they count, in messages for people."""

from __future__ import annotations


def counted(count: int, thing: str, things: str = "") -> str:
    """`1 entry`, `2,000 entries`: `things` where more of it is not said by an s."""
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"
