"""The calls of the programs at the members and their answers: the material of the data checkers."""

from __future__ import annotations

import enum

from phalanx.common.ids import MemberId, Millis

NEVER: Millis = 1 << 60
"""The end of a call without an answer, or whose effect can show at any time."""


class Outcome(enum.Enum):
    OPEN = enum.auto()
    OK = enum.auto()
    FAILED = enum.auto()
    """The caller was told that nothing was changed."""
    INDETERMINATE = enum.auto()
    """The caller was told that nobody knows, or its own process ended."""


class Operation:
    """One call, from its beginning to its answer."""

    __slots__ = ("begin", "end", "expected", "host", "id", "keys", "kind", "member", "outcome", "replier", "result",
                 "values")  # fmt: skip

    def __init__(self, id: int, kind: str, host: int, member: MemberId, keys: tuple[bytes, ...], begin: Millis) -> None:
        self.id = id
        self.kind = kind
        self.host = host
        self.member = member
        """The incarnation that asked."""
        self.keys = keys
        self.values: tuple[bytes, ...] = ()
        """What to store, one for each key; empty: nothing."""
        self.expected: bytes | None = None
        self.begin = begin
        self.end = NEVER
        self.outcome = Outcome.OPEN
        self.result: tuple[bytes | None, ...] | bool | None = None
        """Values that were there, one for each key asked for; a flag; or nothing."""
        self.replier: MemberId | None = None
        """Who answered; the asking member where its own router gave the call up."""

    def __repr__(self) -> str:
        parts = [f"#{self.id} {self.kind} {','.join(key[4:].decode() for key in self.keys)}"]
        if self.values:
            parts.append("=" + ",".join(value[4:].decode() for value in self.values))
        if self.expected is not None:
            parts.append(f" if {self.expected[4:].decode()}")
        parts.append(
            f" by {self.member[:22]} {self.begin}..{'' if self.end == NEVER else self.end} {self.outcome.name}"
        )
        if isinstance(self.result, tuple):
            parts.append(" -> " + ",".join(value[4:].decode() if value else "None" for value in self.result))
        elif self.result is not None:
            parts.append(f" -> {self.result}")
        if self.replier:
            parts.append(f" from {self.replier[:22]}")
        return "".join(parts)
