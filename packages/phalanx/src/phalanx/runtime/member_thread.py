"""A member on a thread of its own, for programs without an event loop: Django, Flask, Celery, notebooks, scripts.

The member has its own event loop there. The program blocks in its threads as long as it likes: heartbeats, leases and
copies continue, as long as Python lets threads have their turns. (Code in C that keeps the interpreter lock for seconds stops
the member too; others then take over what it owns, as if it hung.)
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, overload

from phalanx.client.blocking.facade import BlockingFacade
from phalanx.client.blocking.journal import Journal
from phalanx.common.durations import Duration, to_seconds
from phalanx.common.errors import MemberFailed, PhalanxError, UnavailableError, UsageError
from phalanx.common.ids import Address, MemberId
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.maps.mistakes import HoldsMaps, NeedsPlainWith
from phalanx.maps.own_maps import map_class
from phalanx.maps.requests import member_stopped
from phalanx.maps.time_limit import LONGEST_S
from phalanx.maps.tracing import make_tracing
from phalanx.maps.types import K, TypesOfMaps, V
from phalanx.net.begun_threads import begin_thread
from phalanx.net.forking import FORKED, tell_forks
from phalanx.net.member_threads import refuse_to_block
from phalanx.runtime.local.local_map import LocalMap
from phalanx.runtime.local.thread_calls import MARGIN_S, ThreadCalls
from phalanx.runtime.member import Member, start_member
from phalanx.runtime.process.event_loop import new_event_loop
from phalanx.runtime.settings.config import Config, given_config

FINALIZE_PRIORITY = 10
"""Before multiprocessing ends its own queues and managers."""
EXIT_TIMEOUT_S = 30.0
"""How long a program that ends without `stop` hands over what its member holds."""
NOTICES_AFTER_S = 1.0
"""Within how long a program that waits without end notices an interrupt, at most."""


class MemberThread(NeedsPlainWith, BlockingFacade, HoldsMaps):
    """A member of the grid on a thread of its own, with blocking maps. Made by `start_member_in_thread`.

    All threads of the program can use it at the same time. Stop it, or use it as a context manager; a program that ends
    without doing so stops it at its exit. In a forked process the first use starts another member, if the port is a range (or
    0, with seeds); otherwise it raises `UsageError`. A `Duration` is a number of seconds, or a `datetime.timedelta`.
    """

    def __init__(self, config: Config, on_failure: Callable[[Member | None, BaseException], None] | None) -> None:
        self._config, self._on_failure = config, on_failure
        self._calls = ThreadCalls(self._begin_in_child)
        self._types, self._locks = TypesOfMaps(self._calls.map_plan), self._calls.locks
        self._tracing = make_tracing(config.tracing, lambda: self._member.address)
        self._beginning = threading.Lock()
        self._finalizer: Any = None
        self._begin()
        stop = weakref.WeakMethod(self._stop_at_exit)
        self._at_exit = lambda: _call(stop)
        atexit.register(self._at_exit)
        tell_forks(self)

    def _begin(self) -> None:
        self._started: Future[Member] = Future()
        self._ended: Future[None] = Future()
        self._to_stop: asyncio.Future[tuple[bool | None, float]]
        """How to stop: whether to drain, and for how many seconds at most. Of the loop in the member's thread."""
        self._thread = begin_thread(self._run, "phalanx-member")
        try:
            _wait_until_done(self._started)
            self._member = self._started.result()
        except BaseException:
            self._started.cancel()  # an interrupt of this thread: the other one gives up joining
            raise
        self._process = os.getpid()
        """The process whose thread runs the member."""
        if (util := sys.modules.get("multiprocessing.util")) is not None:
            # A process that multiprocessing has forked ends without what `atexit` knows.
            self._finalizer = util.Finalize(self, MemberThread._stop_at_exit, (self,), exitpriority=FINALIZE_PRIORITY)

    def on_forked(self) -> None:
        """Forget, in a forked process, that another thread of the parent was about to begin."""
        self._beginning = threading.Lock()

    def _begin_in_child(self) -> None:
        """Start a member of its own in a forked process. Raises `UsageError` if its settings do not let it find the others."""
        config = self._config
        if self._ended.done():
            raise member_stopped()
        if len(config.ports) == 1 and not (config.port == 0 and config.seeds):
            raise UsageError(
                f"this member cannot be used here: {FORKED}. A member with a range of ports (port='5701-5720') does so by itself"
            )
        with self._beginning:
            if self._process != os.getpid():
                try:
                    self._begin()
                except BaseException:
                    self._ended = Future()  # the next use tries again
                    raise

    def __repr__(self) -> str:
        return f"MemberThread({self._member.address}{'' if self.is_running else ', stopped'})"

    def __enter__(self) -> MemberThread:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    # --- what it is ------------------------------------------------------------------------------------------------

    @property
    def id(self) -> MemberId:
        """Return this incarnation's identity."""
        return self._here().id

    @property
    def address(self) -> Address:
        """Return the address (`host:port`) under which others reach this member."""
        return self._here().address

    @property
    def http_port(self) -> int:
        """Return the port at which it answers HTTP; 0: at none."""
        return self._here().http_port

    @property
    def view(self) -> MembersView | None:
        """Return the installed view; None: this member is not in a cluster."""
        return self._here().view

    @property
    def table(self) -> PartitionTable:
        """Return the installed partition table."""
        return self._here().table

    @property
    def is_running(self) -> bool:
        """Whether the member has neither stopped nor failed."""
        return self._process == os.getpid() and not self._ended.done()

    def _here(self) -> Member:
        """Return the member, which in a forked process is started now."""
        if self._process != os.getpid():
            self._begin_in_child()
        return self._member

    # --- what it has -----------------------------------------------------------------------------------------------

    @overload
    def map(self, name: str, *, dicts: str | None = None) -> LocalMap[Any, Any]: ...
    @overload
    def map(self, name: str, *, key: type[K], value: type[V], dicts: str | None = None) -> LocalMap[K, V]: ...
    @overload
    def map(self, name: str, *, key: Any = None, value: Any = None, dicts: str | None = None) -> LocalMap[Any, Any]: ...
    def map(self, name: str, *, key: Any = None, value: Any = None, dicts: str | None = None) -> LocalMap[Any, Any]:
        """Return the distributed map of that name, a `MutableMapping`; it exists as soon as something is stored in it.

        What this member owns is read without a socket, and without a turn of its event loop. `key`, `value`: the types of
        keys and values (docs/how-to/typed-maps.md); None: any that can be stored. `dicts`: how dicts are stored, "rows"; or "json", so
        that programs in other languages read them, too; None: as the map's setting `dicts` says; as rows if it has none. Raises
        `UsageError` if the name is invalid, or a type cannot be used; calls about dicts do if `dicts` contradicts the setting.
        """
        made = map_class(LocalMap, name)(name, self._calls, self._types.of(name, key, value, dicts))
        return made if self._tracing is None else self._tracing.traced(made)

    def journal(self, map_name: str) -> Journal:
        """Return the journal of a map: the events of its entries; as `Client.journal`."""
        return Journal(map_name, self._calls)

    def map_names(self, *, with_empty: bool = False) -> list[str]:
        """Return the names of the maps that have entries, sorted. `with_empty`: also of maps that had entries before."""
        return self._calls.map_names(with_empty=with_empty)

    # --- its end ---------------------------------------------------------------------------------------------------

    def stop(self, *, drain: bool | None = None, timeout_s: Duration = 60.0) -> None:
        """Leave the cluster and stop. `drain`: True: first hand all replicas over to other members; False: at once; None: a member with a
        folder lets others own what they have, too, and comes back with what the folder has. One without drains.

        If that takes longer than `timeout_s` seconds, the member stops nevertheless, and its backups take over as after a
        crash. Does nothing if it has stopped, and in a forked process that has no member of its own.
        """
        if self._process != os.getpid():
            return  # a forked process that has not used it
        refuse_to_block()
        timeout_s = to_seconds("timeout_s", timeout_s, "0 or more, at most a year", at_most=LONGEST_S, may_be_zero=True)
        if self.is_running:
            self._calls.locks.release_all()
            self._calls.in_loop(self._stop_member, drain, timeout_s)
            if not wait([self._ended], timeout_s + MARGIN_S).done:
                raise UnavailableError(
                    f"the member has not stopped within {timeout_s + MARGIN_S:g} s: its thread is blocked"
                )
        self._thread.join(MARGIN_S)
        self._forget_exit()

    def wait_ended(self, timeout_s: float | None = None) -> bool:
        """Wait until the member has ended, for at most `timeout_s` seconds (None: without end). Return whether it has.

        Raises the error that ended it, if any: `MemberFailed` after an unexpected one, `JoinFailed` if it could not rejoin.
        """
        self._calls.check()
        if timeout_s is None:
            _wait_until_done(self._ended)
        try:
            self._ended.result(timeout_s)
        except TimeoutError:
            return False
        return True

    def _forget_exit(self) -> None:
        """Do nothing at the end of the program: the member has ended."""
        atexit.unregister(self._at_exit)
        if self._finalizer is not None:
            self._finalizer.cancel()

    def _stop_at_exit(self) -> None:
        if self._process == os.getpid() and self._thread.is_alive():
            self.stop(timeout_s=EXIT_TIMEOUT_S)

    # --- in its thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            ended = error if isinstance(error, PhalanxError) else MemberFailed(f"{type(error).__name__}: {error}")
            ended.__cause__ = None if ended is error else error
            self._ended.set_exception(ended)
        else:
            self._ended.set_result(None)

    async def _serve(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def give_up(started: Future[Member]) -> None:
            if task is not None and started.cancelled():
                loop.call_soon_threadsafe(task.cancel)

        self._started.add_done_callback(give_up)
        try:
            member = await self._start(self._config, self._on_failure)
        except BaseException as error:
            if self._started.set_running_or_notify_cancel():
                self._started.set_exception(error)
            return
        calls = self._calls
        self._to_stop = loop.create_future()
        if not self._started.set_running_or_notify_cancel():
            await member.stop(drain=False)
            return
        calls.attach(member.caller, loop)
        self._started.set_result(member)
        ended = asyncio.create_task(member.wait_ended())
        try:
            waits: set[asyncio.Future[Any]] = {ended, self._to_stop}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            how: tuple[bool | None, float] = self._to_stop.result() if self._to_stop.done() else (False, 0.0)
            drain, timeout_s = how
            await member.stop(drain=drain, timeout_s=timeout_s)
            await asyncio.sleep(0)  # the calls that this has ended come back
        finally:
            calls.end()
        await ended

    async def _start(self, config: Config, on_failure: Callable[[Member | None, BaseException], None] | None) -> Member:
        return await start_member(config, on_failure)

    def _stop_member(self, drain: bool | None, timeout_s: float) -> None:
        if not self._to_stop.done():
            self._to_stop.set_result((drain, timeout_s))
        elif drain is False:
            self._at_once = asyncio.ensure_future(self._member.stop(drain=False))


def _wait_until_done(future: Future[Any]) -> None:
    """Wait in short turns: an interrupt that comes just before a wait is noticed only at its end."""
    while not wait((future,), NOTICES_AFTER_S).done:
        pass


def _call(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    if (bound := method()) is not None:
        bound()


def start_member_in_thread(
    config: Config | None = None, on_failure: Callable[[Member | None, BaseException], None] | None = None
) -> MemberThread:
    """Start a member on a thread of its own, with a blocking API. Wait until it has joined its cluster.

    `config`: None is `Config()`, a cluster of one. `on_failure` is called, in the member's thread, with the member and the
    error if it ends as in a crash after an unexpected error. Raises `UsageError` if the member cannot listen on its address,
    or a setting is wrong, and `JoinFailed` if no seed admits it within `join_attempts` tries.
    """
    return MemberThread(given_config(config), on_failure)
