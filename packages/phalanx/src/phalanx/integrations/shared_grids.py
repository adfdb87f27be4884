"""The grid as the caches of one process use it: connected at the first use, and left alone for a while when nobody answers.

A site whose every request waits for a cache that cannot answer is down. So a cache waits once, and then ends its calls at once until
some seconds have passed; then one call tries again, and the others continue ending at once until it has succeeded. Errors reach the
caller, or (`ignore_errors`) are told in the log, and the cache behaves as an empty one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from phalanx.client.sync import Client
from phalanx.common.durations import Duration, to_seconds
from phalanx.common.errors import (
    ClientClosed,
    GridFull,
    IndeterminateWrite,
    NotEnoughMembers,
    UnavailableError,
    UsageError,
)
from phalanx.common.seeds import parse_members
from phalanx.common.words import quoted
from phalanx.maps.time_limit import call_limit
from phalanx.net.forking import tell_forks

if TYPE_CHECKING:
    from phalanx.client.blocking.sync_map import SyncMap

logger = logging.getLogger("phalanx.cache")

T = TypeVar("T")

RETRY_AFTER_S: Final = 5.0
"""For how long calls end at once after one that nobody answered."""
QUICK_S: Final = 2.0
"""How long a cache waits for its connection, and where errors are ignored for an answer, unless it is told otherwise."""
LONGEST_RETRY_S: Final = 3600.0
NOT_ANSWERED: Final = (UnavailableError, IndeterminateWrite)
"""Errors after which nobody is asked for a while, but for `NotEnoughMembers`, which comes at once."""
IGNORED: Final = (*NOT_ANSWERED, ClientClosed, GridFull)


class SharedGrid:
    """A client, or what else a program has as its grid, with the memory of whether it answered last."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        """`connect`: returns the grid; called at the first use, because programs are loaded before their processes are forked."""
        self._connect = connect
        self._grid: Any = None
        self._connecting = threading.Lock()
        self._try_again_at = 0.0
        """When a call can ask again, by `monotonic`; 0: the last one was answered."""
        self._failures = 0
        """How many calls were not answered."""
        self._reason = ""
        self._is_end_logged = False
        """Whether the log says that this program has closed its grid."""
        tell_forks(self)

    def on_forked(self) -> None:
        """Forget, in a forked process, that a thread of the parent was about to connect."""
        self._connecting = threading.Lock()

    def use(self, call: Callable[[Any], T], retry_after_s: float) -> T:
        """Return what a call of the grid returns. Raises what it raises; `UnavailableError` at once while nobody is asked."""
        failures, now = self._failures, monotonic()
        if self._try_again_at:
            if now < self._try_again_at:
                raise self._not_asked()
            self._try_again_at = now + retry_after_s  # this call tries, and the others do not wait for it
        try:
            if (grid := self._grid) is None:
                grid = self._connected(failures)
            result = call(grid)
        except NotEnoughMembers:
            raise
        except ClientClosed as error:
            if not self._is_end_logged:
                self._is_end_logged = True
                logger.warning("the cache no longer has a grid: %s", error)
            raise
        except NOT_ANSWERED as error:
            self._failed(error, retry_after_s)
            raise
        if self._try_again_at:
            self._try_again_at = 0.0
            logger.info("the grid answers again")
        return result

    def _connected(self, failures: int) -> Any:
        """Return the grid. Threads that have waited for one that could not connect do not try it one after the other."""
        with self._connecting:
            if self._grid is None:
                if self._failures != failures:
                    raise GridNotAsked(f"the grid was not reached: {self._reason}")
                try:
                    self._grid = self._connect()
                except NOT_ANSWERED as error:
                    self._failures += 1
                    self._reason = str(error)
                    raise
            return self._grid

    def _failed(self, error: Exception, retry_after_s: float) -> None:
        if isinstance(error, GridNotAsked):
            return
        if not self._try_again_at:
            logger.warning("the grid does not answer, and is asked again every %g s: %s", retry_after_s, error)
        self._failures += 1
        self._reason = str(error)
        if retry_after_s:
            self._try_again_at = monotonic() + retry_after_s

    def _not_asked(self) -> UnavailableError:
        left_s = max(self._try_again_at - monotonic(), 0.0)
        return GridNotAsked(f"the grid did not answer, and is not asked for another {left_s:.1f} s: {self._reason}")


class GridNotAsked(UnavailableError):
    """Nobody was asked, because another call was not answered just before."""


class CachedMap:
    """The map of one cache."""

    def __init__(self, grid: SharedGrid, name: str, *, ignore_errors: bool, retry_after: Duration) -> None:
        """`ignore_errors`: whether calls return `otherwise` when the grid cannot do them. `retry_after`: seconds for which calls end
        at once after one that nobody answered; 0: each asks. Raises `UsageError`."""
        if not isinstance(ignore_errors, bool):
            raise UsageError(f"ignore_errors is {quoted(ignore_errors)}: give True or False")
        self._grid, self._name, self._ignores = grid, name, ignore_errors
        self._retry_after_s = to_seconds(
            "retry_after", retry_after, "0 to 3600; 0: each call asks", at_most=LONGEST_RETRY_S, may_be_zero=True
        )

    def use(self, call: Callable[[SyncMap[str, Any]], T], otherwise: T) -> T:
        """Return what a call of the map returns, or `otherwise` where errors are ignored."""
        try:
            return self.ask(call)
        except IGNORED:
            if not self._ignores:
                raise
            return otherwise

    def ask(self, call: Callable[[SyncMap[str, Any]], T]) -> T:
        """Return what a call of the map returns. Its errors reach the caller."""
        return self._grid.use(lambda grid: call(grid.map(self._name)), self._retry_after_s)


_shared: dict[tuple[Any, ...], SharedGrid] = {}


def grid_at(members: str | Sequence[str], settings: Mapping[str, Any], *, ignores_errors: bool) -> SharedGrid:
    """Return the grid that all caches of this process with these members and settings share. `settings`: further arguments of
    `Client`. Raises `UsageError`."""
    given = parse_members(members)
    if ignores_errors:
        settings = {"call_timeout_s": QUICK_S, **settings}
    settings = {"connect_timeout_s": min(QUICK_S, call_limit(settings.get("call_timeout_s", QUICK_S))), **settings}
    key = (str(given), given.cluster, *sorted(settings.items()))
    return _shared.setdefault(key, SharedGrid(lambda: Client(members, **settings)))


def grid_named(path: str, load: Callable[[str], Any]) -> SharedGrid:
    """Return the grid at a dotted path, for all caches of this process that name it. `load`: imports it."""
    return _shared.setdefault((path,), SharedGrid(lambda: load(path)))
