"""Checks that stay on. A bare `assert` disappears under `-O`; the checks of a data grid must not."""

from __future__ import annotations

from typing import TypeVar

from phalanx.common.errors import InvariantViolation

T = TypeVar("T")


def invariant(condition: object, what_must_hold: str, **facts: object) -> None:
    """Raise `InvariantViolation` with the facts unless the condition holds."""
    if not condition:
        raise _violation(what_must_hold, facts)


def known(value: T | None, what_must_hold: str, /, **facts: object) -> T:
    """Return the value. Raise `InvariantViolation` with the facts if it is None."""
    if value is None:
        raise _violation(what_must_hold, facts)
    return value


def _violation(what_must_hold: str, facts: dict[str, object]) -> InvariantViolation:
    details = ", ".join(f"{name}={fact!r}" for name, fact in facts.items())
    return InvariantViolation(f"{what_must_hold} ({details})" if details else what_must_hold)
