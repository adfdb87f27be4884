"""Whole searches for connected sets, where a member makes them slice by slice."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from phalanx.membership.connectivity import ConnectedSet, Search

M = TypeVar("M")


def best_connected_members(
    members: Iterable[M],
    disconnections: Mapping[M, Iterable[M]],
    *,
    keep_going: Callable[[], bool] = lambda: True,
    **known: Any,
) -> ConnectedSet[M]:
    """The best set, or the best so far when `keep_going` says no. `known`: what else `Search` is to know."""
    search = Search(members, disconnections, **known)
    while not search.run() and keep_going():
        pass
    return search.best()


def all_largest_connected_sets(
    members: Iterable[M], disconnections: Mapping[M, Iterable[M]], *, limit: int | None = None
) -> list[tuple[M, ...]]:
    """All connected sets of the greatest number of members, or the first of them."""
    return Search(members, disconnections).find_largest(limit)
