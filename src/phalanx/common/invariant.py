"""Checks that stay on. A bare `assert` disappears under `-O`; what must hold in a data grid may not."""

from __future__ import annotations

from phalanx.common.errors import InvariantViolation


def invariant(condition: object, what_must_hold: str, **facts: object) -> None:
    """Raise `InvariantViolation` with the facts unless the condition holds."""
    if not condition:
        told = ", ".join(f"{name}={fact!r}" for name, fact in facts.items())
        raise InvariantViolation(f"{what_must_hold} ({told})" if told else what_must_hold)
