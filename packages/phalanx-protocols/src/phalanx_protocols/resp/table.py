"""What is known of a command besides what carries it out: for clients (COMMAND), for its checks, and for docs/redis.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from phalanx_protocols.resp.framing import error


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command."""

    name: str
    """In lower case."""
    handle: Any
    """Carries it out (`connection.Handler`)."""
    arity: int
    """The number of its words with its name; below 0: at least so many."""
    group: str
    summary: str
    """What it does, in a sentence."""
    flags: tuple[str, ...] = ("fast",)
    first_key: int = 0
    """The place of its first key; 0: it has none."""
    last_key: int = 0
    """The place of its last key; below 0: counted from its end."""
    step: int = 0
    """From one key to the next."""
    is_idempotent: bool = False
    """Whether doing it twice leaves the same as doing it once."""
    is_for_strangers: bool = False
    """Whether clients can give it before they have shown the token."""
    is_short: bool = False
    """Whether it takes some microseconds whatever is stored, beside its answer: nobody looks at the clock for it."""
    is_of_connection: bool = False
    """Whether it is about the connection alone, and needs not wait for those before it."""
    is_outside_transactions: bool = False
    """Whether it is carried out at once in a transaction."""
    refuses: Callable[[list[bytes]], bytes | None] | None = None
    """Returns the error for words that are refused with any stored value, which breaks a transaction at once; None: none is."""
    differs: str = ""
    """How it differs from Redis; empty: in nothing that a client could see."""

    def is_of_one_key(self, args: list[bytes]) -> bool:
        """Return whether it is about exactly one key."""
        return 0 < self.first_key < len(args) and self.last_key_of(args) == self.first_key

    def last_key_of(self, args: list[bytes]) -> int:
        """Return the place of its last key in these words."""
        return self.last_key if self.last_key >= 0 else len(args) + self.last_key

    def keys_in(self, args: list[bytes]) -> list[bytes]:
        """Return the keys in these words."""
        if not self.first_key:
            return []
        return args[self.first_key : self.last_key_of(args) + 1 : self.step]


class Commands:
    """Collects the commands of one group."""

    def __init__(self, group: str) -> None:
        self._group = group
        self.found: list[Command] = []

    def add(self, name: str, arity: int, summary: str, handle: Any, flags: str = "fast", **known: Any) -> None:
        """Add a command. A handler that reads or writes one key in its second word needs not say so: flags do."""
        words = tuple(flags.split())
        if "first_key" not in known and ("readonly" in words or "write" in words):
            known |= {"first_key": 1, "last_key": 1, "step": 1}
        if not known.get("first_key"):
            known |= {"first_key": 0, "last_key": 0, "step": 0}
        known.setdefault("is_idempotent", "readonly" in words)
        known.setdefault("refuses", getattr(handle, "refuses", None))
        self.found.append(
            Command(name=name, handle=handle, arity=arity, group=self._group, summary=summary, flags=words, **known)
        )

    def refuse(self, name: str, text: str, flags: str, why: str, arity: int = -1, **known: Any) -> None:
        """Add a command that is refused by name, with a text for its clients. `why`: the same in short, for the table of the page."""
        refusal = error(f"ERR {text}")
        self.add(name, arity, "Refused.", lambda c, args: refusal, flags, refuses=lambda args: refusal,
                 differs=f"Refused: {why}", **known)  # fmt: skip


SEVERAL: dict[str, Any] = {"first_key": 1, "last_key": -1, "step": 1}
"""All words behind the name are keys."""
