"""The state of a lock or semaphore as a plain object."""

from __future__ import annotations

from typing import Any

from phalanx.maps.locks import LockStatus


def as_object(name: str, map_name: str | None, found: LockStatus) -> dict[str, Any]:
    """Return who holds it, for how long, and how many wait. `map_name`: the map of whose key it is; None: of none."""
    return {
        "name": name,
        "map": map_name,
        "permits": found.permits or None,
        "token": found.token or None,
        "holders": [
            {"holder": holder, "token": token, "lease_left_s": round(left, 3)}
            for holder, token, left in zip(found.holders, found.tokens, found.lease_left, strict=True)
        ],
        "waiting": found.waiting,
    }
