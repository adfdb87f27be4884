"""What a function of the program gets and returns that changes a value where it lives (`Config.functions`).

    def limited(value, by, most):
        total = (0 if value is phalanx.ABSENT else value) + by
        return phalanx.Update(total, result=True) if total <= most else phalanx.UNCHANGED

Such a function is pure: it runs at the owner of the key, once for each call, and backups get the value that it returned.
While it runs its member does nothing else.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from phalanx.common.errors import UsageError
from phalanx.common.words import check_text, quoted

UpdateFunction: TypeAlias = Callable[..., object]
"""A function of a value, or `ABSENT`, and arguments, that returns `Update`, `REMOVE` or `UNCHANGED`."""


class NoValue(enum.Enum):
    """What stands for no value."""

    ABSENT = enum.auto()
    """The key has no value."""
    REMOVE = enum.auto()
    """Remove the key."""
    UNCHANGED = enum.auto()
    """Leave the key as it is."""

    def __repr__(self) -> str:
        return f"phalanx.{self.name}"


ABSENT: Final = NoValue.ABSENT
REMOVE: Final = NoValue.REMOVE
UNCHANGED: Final = NoValue.UNCHANGED


class Update(NamedTuple):
    """What a function makes of a value."""

    value: Any
    """The value that the key has then; or `REMOVE`, or `UNCHANGED`."""
    result: Any = None
    """What the caller gets."""


def named_functions(
    given: Mapping[str, UpdateFunction] | Iterable[UpdateFunction], taken: Iterable[str]
) -> dict[str, UpdateFunction]:
    """Return the functions by name; those that are given without one have their own. Raises `UsageError` for what is not a
    function, and for a name that is used twice or is `taken`."""
    if isinstance(given, Mapping):
        pairs = list(given.items())
    elif isinstance(given, str) or not isinstance(given, Iterable):
        raise UsageError(f"functions: {quoted(given)} is neither a list of functions nor a dict of them by name")
    else:
        pairs = [(getattr(each, "__name__", ""), each) for each in given]
    found: dict[str, UpdateFunction] = {}
    for name, function in pairs:
        if not callable(function):
            raise UsageError(f"functions: {quoted(function)} cannot be called")
        if not isinstance(name, str) or not name or name == "<lambda>":
            raise UsageError(f"functions: {quoted(function)} has no name: give a dict of functions by name")
        if name in found:
            raise UsageError(f"functions: two are named {quoted(name)}")
        if name in taken:
            raise UsageError(f"functions: every member has one that is named {quoted(name)}: choose another name")
        found[check_text(name, "function name")] = function
    return found
