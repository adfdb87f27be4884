"""What `dir()` and completion show of an object that other modules of Phalanx use more of than programs do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar


class PublicNames:
    """Base of a class of which programs are promised a part: the rest is not listed, but can be used as before.

    `_internal`: names without an underscore that are not promised, each class its own; the reference leaves them out, too.
    """

    _internal: ClassVar[frozenset[str]] = frozenset({"on_forked"})

    def __dir__(self) -> Iterable[str]:
        hidden = internal_names(type(self))
        listed = set(super().__dir__()) - hidden
        return [name for name in listed if not name.startswith("_") or name.endswith("__")]


def internal_names(kind: type) -> frozenset[str]:
    """Return the names of a class and its bases that programs are not promised."""
    return frozenset().union(*(vars(each).get("_internal", ()) for each in kind.__mro__))
