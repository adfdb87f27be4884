"""What `dir()`, `help()` and completion show of a class that other modules of Phalanx use more of than programs do."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Iterable
from typing import ClassVar


class _ListsPublicNames(ABCMeta):
    """Completion and `help()` ask the class, too. Maps are abstract mappings, which have this base already."""

    def __dir__(cls) -> Iterable[str]:
        return _public(super().__dir__(), cls)


class PublicNames(metaclass=_ListsPublicNames):
    """Base of a class of which programs are promised a part: the rest is not listed, but can be used as before.

    `_internal`: names without an underscore that are not promised, each class its own; the reference leaves them out, too.
    """

    _internal: ClassVar[frozenset[str]] = frozenset({"on_forked"})

    def __dir__(self) -> Iterable[str]:
        return _public(super().__dir__(), type(self))


def internal_names(kind: type) -> frozenset[str]:
    """Return the names of a class and its bases that programs are not promised."""
    return frozenset().union(*(vars(each).get("_internal", ()) for each in kind.__mro__))


def _public(names: Iterable[str], kind: type) -> list[str]:
    hidden = internal_names(kind)
    return [name for name in names if name not in hidden and (not name.startswith("_") or name.endswith("__"))]
