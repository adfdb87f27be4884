"""A member as a process: it joins, serves until it is told to stop, hands over and leaves, and says so in log lines."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from phalanx.cli.log_lines import is_harmless
from phalanx.cli.process_setup import collect_less_often
from phalanx.cli.service_manager import READY, STOPPING, tell_service_manager
from phalanx.common.ids import address_of
from phalanx.common.words import counted
from phalanx.runtime.logs.safe_logger import SafeLogger
from phalanx.runtime.member import Member, start_member
from phalanx.runtime.process.signals import STOP_SIGNALS, handle_signals
from phalanx.runtime.settings.config import Config

logger = SafeLogger("phalanx.member")

TELL_EVERY_S = 0.5
"""Between two looks at what a leaving member still holds. A line is printed if it has become less."""
TELL_STILL_S = 5.0
"""A line is also printed if nothing has become less for so long."""
LEAVE_WITHIN_S = 60.0
"""A member that is told to leave does so by then, handed over or not."""
NOT_HANDED_OVER = 75
"""The exit status of a member that ended by this limit before others had all that it held (EX_TEMPFAIL of sysexits.h)."""


async def serve(
    config: Config,
    on_ready: Callable[[Member], None] | None,
    *,
    stop_with_stdin: bool = False,
    on_failure: Callable[[Member | None, BaseException], None] | None = None,
) -> int:
    """Join, serve, and leave when told to. Return the exit status; raises what ends the member otherwise.

    `on_failure`: what ends the process when something unexpected happens, in the member or elsewhere in the loop.
    """
    stops = _Stops(stop_with_stdin=stop_with_stdin)
    starting = asyncio.create_task(start_member(config, on_failure))
    if on_failure is not None:
        _end_with_errors_of_the_loop(on_failure)
    await _first_of(starting, stops.leave)
    if not starting.done():
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        logger.info("stopped before it had joined a cluster")
        return 0
    running = starting.result()
    _settle_gc()
    tell_service_manager(READY, f"{running.address} is a member of cluster {config.cluster}")
    if on_ready is not None:
        on_ready(running)
    status, ended = 0, asyncio.create_task(running.wait_ended())
    await _first_of(ended, stops.leave)
    if ended.done() and running.has_left:
        await running.wait_closed()
        logger.info("%s has stopped, because an operator has said so", running.address)
    elif not ended.done():
        keeps = running.keeps_data
        does = "stops, and keeps its data in its folder" if keeps else "leaves"
        tell_service_manager(STOPPING, f"{running.address} {does}")
        logger.info("%s %s, within %g s; send the signal again to end at once", running.address, does, LEAVE_WITHIN_S)
        held = running.replicas_held
        drain = False if stops.leave_now.is_set() else None
        leaving = asyncio.create_task(running.stop(drain=drain, timeout_s=LEAVE_WITHIN_S))
        telling = asyncio.create_task(_tell_waiting(running) if keeps else _tell_progress(running))
        telling.add_done_callback(_log_failure)
        await _first_of(leaving, stops.leave_now)
        telling.cancel()
        if not leaving.done():
            becomes = "its folder keeps them" if running.keeps_data else "data without a backup is lost"
            logger.warning("%s ends at once: %d replicas are not handed over; %s",
                           running.address, running.replicas_held, becomes)  # fmt: skip
            await running.stop(drain=False)
        await leaving
        if running.has_left:
            logger.info(
                "%s has left: %s",
                running.address,
                _what_became(held, running.replicas_held, keeps=running.keeps_data),
            )
        logger.info("%s has stopped", running.address)
        if (
            not running.has_left and not stops.leave_now.is_set()
        ):  # after a second signal the operator knows what is lost
            status = NOT_HANDED_OVER
    await ended
    return status


def _end_with_errors_of_the_loop(on_failure: Callable[[Member | None, BaseException], None]) -> None:
    """End the process with an error that a callback raises: by default the loop only logs it and continues."""

    def on_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        loop.default_exception_handler(context)
        if not is_harmless(context):
            on_failure(None, context["exception"])

    asyncio.get_running_loop().set_exception_handler(on_error)


def _what_became(held: int, left: int, *, keeps: bool) -> str:
    """Say what became of the replicas that a member had when it began to leave. `keeps`: its folder has them."""
    if left and keeps:
        return f"its folder keeps {counted(left, 'replica')}, for when it is started again"
    if left:
        return f"nobody took over {counted(left, 'replica')}, which went with it"
    return "other members hold its data" if held else "it had no data"


async def _tell_progress(running: Member) -> None:
    """Say how many replicas are left to hand over as they become fewer, where they go, and what is waited for."""
    logged_at, held = time.monotonic(), running.replicas_held
    fewest = held + 1
    while (view := running.view) is not None:
        left, receivers = running.replicas_held, running.receivers()
        to = f"; sends to {', '.join(receivers)}" if receivers else ""
        if 0 < left < fewest:
            logged_at, fewest = time.monotonic(), left
            logger.info("%s has %d of %d replicas left to hand over%s", running.address, left, held, to)
        elif time.monotonic() - logged_at >= TELL_STILL_S:
            logged_at = time.monotonic()
            has = f"still has {left} replicas" if left else "has nothing left"
            waits = "" if view.master == running.id else f"; waits for the master, {address_of(view.master)}"
            if missing := running.waits_for:
                otherwise = "is only in its folder" if running.keeps_data else "is lost"
                waits = f": it waits for {', '.join(missing)}, or another member, to take them over; otherwise data that only it holds {otherwise}"
            logger.warning("%s %s to hand over%s", running.address, has, to or waits)
        await asyncio.sleep(TELL_EVERY_S)


async def _tell_waiting(running: Member) -> None:
    """Say who has not let a member stop yet that keeps its data."""
    while (view := running.view) is not None:
        await asyncio.sleep(TELL_STILL_S)
        await asyncio.sleep(TELL_STILL_S)
        master = "" if view.master == running.id else f" the master, {address_of(view.master)}, and for"
        logger.warning(
            "%s has not stopped yet: it waits for%s copies of what only members have that stop", running.address, master
        )


def _log_failure(telling: asyncio.Task[None]) -> None:
    """Log an error of a task that only informs people: it must not end the member."""
    if not telling.cancelled() and (error := telling.exception()) is not None:
        logger.warning("cannot report how many replicas are left to hand over: %r", error)


class _Stops:
    """The signals and the end of stdin, which tell a member process to stop."""

    def __init__(self, *, stop_with_stdin: bool) -> None:
        self.leave = asyncio.Event()
        self.leave_now = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        # Not the loop's own handlers: they end with the loop, and a signal in the last moment would kill the process.
        handle_signals(STOP_SIGNALS, lambda number: self._in_loop(self._on_signal, number))
        if stop_with_stdin:
            threading.Thread(target=self._watch_stdin, name="stdin", daemon=True).start()

    def _on_signal(self, number: int) -> None:
        # A terminal that is closed sends SIGHUP more than once, and means the same each time.
        if self.leave.is_set() and number != signal.SIGHUP:
            self.leave_now.set()
        self.leave.set()

    def _in_loop(self, call: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the member stops anyway
            self._loop.call_soon_threadsafe(call, *arguments)

    def _watch_stdin(self) -> None:
        """Wait for it in a thread: the loop cannot wait for files and /dev/null, which end at once."""
        wait_stdin_end()
        self._in_loop(self._on_stdin_end)

    def _on_stdin_end(self) -> None:
        self.leave_now.set()
        self.leave.set()


def wait_stdin_end() -> None:
    """Read stdin until it ends."""
    with contextlib.suppress(OSError):
        while os.read(sys.stdin.fileno(), 4096):
            pass


async def _first_of(task: asyncio.Task[object], event: asyncio.Event) -> None:
    """Wait until the task is done or the event is set. The task continues."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


def print_ready(running: Member) -> None:
    """Tell the program that started this process where the member listens, on stdout."""
    view = running.view
    ready = {
        "ready": True,
        "address": running.address,
        "member": running.id,
        "cluster": running.config.cluster,
        "pid": os.getpid(),
        "view_version": view.version if view is not None else None,
        "http_port": running.http_port or None,
    }
    try:
        print(json.dumps(ready), flush=True)
    except OSError as error:
        logger.warning("cannot print on stdout that this member is ready: %s", error)


def _settle_gc() -> None:
    """Exempt what is loaded by now from garbage collection, and collect young objects less often."""
    gc.collect()
    gc.freeze()
    collect_less_often()
