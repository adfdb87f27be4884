"""How a bug is planted: a piece of a member's machines is replaced."""

from __future__ import annotations


def replace(machine: object, name: str, by: object) -> None:
    """Give one object another method, or another variable."""
    setattr(machine, name, by)
