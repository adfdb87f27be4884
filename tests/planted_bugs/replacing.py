"""How a bug is planted: a piece of a member's machines is replaced."""

from __future__ import annotations


def replace(machine: object, name: str, by: object) -> None:
    """Give one object another method, or another variable."""
    assert hasattr(machine, name), f"{machine} has no {name}"
    setattr(machine, name, by)
