"""What programs at the members did with locks, and the answers that they got: the material of the lock checker."""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx_proof.sim.history.operations import NEVER

Name = tuple[bytes, bool]
"""The key of a lock, and whether it is a semaphore."""


class Grant:
    """One acquisition that was granted."""

    __slots__ = ("answered_at", "asked_at", "ends_at", "host", "name", "over_at", "permits", "replier", "token")

    def __init__(self, name: Name, permits: int, token: int, host: int, asked_at: Millis, answered_at: Millis) -> None:
        self.name = name
        self.permits = permits
        self.token = token
        self.host = host
        self.asked_at = asked_at
        self.answered_at = answered_at
        self.ends_at: Millis = answered_at
        """When its lease ends, as its holder counts it."""
        self.over_at: Millis = NEVER
        """When its holder began to release it, or its process ended."""
        self.replier: MemberId | None = None
        """Who told it."""

    def __repr__(self) -> str:
        key, is_semaphore = self.name
        what = "semaphore" if is_semaphore else "lock"
        return (
            f"{what} {key[4:].decode()} at host {self.host}, token {self.token}, asked for at {self.asked_at} ms, held from "
            f"{self.answered_at} to {self.until} ms, told by {self.replier}"
        )

    @property
    def until(self) -> Millis:
        """Until when its holder took it for its own."""
        return min(self.ends_at, self.over_at)


class FencedWrite:
    """One write with a fencing token that was acknowledged."""

    __slots__ = ("answered_at", "began_at", "key", "replier", "token")

    def __init__(self, key: bytes, token: int, began_at: Millis, answered_at: Millis, replier: MemberId) -> None:
        self.key = key
        self.token = token
        self.began_at = began_at
        self.answered_at = answered_at
        self.replier = replier

    def __repr__(self) -> str:
        return f"write of {self.key[4:].decode()} with token {self.token}, {self.began_at} to {self.answered_at} ms, told by {self.replier}"


LockAnswer = Grant | FencedWrite
"""What a program was told."""
