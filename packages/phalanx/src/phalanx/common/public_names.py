"""What `dir()`, `help()` and completion show of a class that other modules of Phalanx use more of than programs do."""

from __future__ import annotations

import inspect
from abc import ABCMeta
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NoReturn


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


class AbsentName:
    """An attribute that is not there: asking an object for it raises an error that says what to write instead.

    `__getattr__` could say the same, but Python then looks up all attributes of the class on its slow way, also those that are there: it
    cost a call of a client a fifth more. Classes that have the name come before the one that says this.
    """

    def __init__(self, name: str, error: Callable[[Any, str], AttributeError]) -> None:
        self._name = name
        self._error = error

    def __get__(self, instance: object, kind: type) -> NoReturn:
        if instance is None:
            raise AttributeError(
                f"type object {kind.__name__!r} has no attribute {self._name!r}", name=self._name, obj=kind
            )
        raise self._error(instance, self._name)


def internal_names(kind: type) -> frozenset[str]:
    """Return the names of a class and its bases that programs are not promised."""
    return frozenset().union(*(vars(each).get("_internal", ()) for each in kind.__mro__))


def _public(names: Iterable[str], kind: type) -> list[str]:
    hidden = internal_names(kind)
    shown = (name for name in names if name not in hidden and (not name.startswith("_") or name.endswith("__")))
    return [name for name in shown if not isinstance(inspect.getattr_static(kind, name, None), AbsentName)]
