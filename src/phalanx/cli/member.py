"""`phalanx member`: one member as a process of its own.

| status | meaning |
|---|---|
| 0 | it has left, or was told to stop before it had joined |
| 1 | it could not be started, or joined no cluster: stderr says why |
| 2 | the command line or the configuration is wrong |
| 70 | it has failed and ended as in a crash: others take over. The last words on stderr say why (`runtime/failure.py`) |
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from phalanx.cli.app import FAILED, in_one_line
from phalanx.cli.log_lines import LogFormat, is_harmless, log_to_stderr
from phalanx.cli.member_group import MemberGroup
from phalanx.cli.service_manager import READY, STOPPING, tell_service_manager
from phalanx.common.errors import PhalanxError, UsageError
from phalanx.common.ids import address_of
from phalanx.net.secret import SECRET_FILE_VARIABLE
from phalanx.runtime.config import DEFAULT_PORT, Config
from phalanx.runtime.configuration import load_config, read_assignments
from phalanx.runtime.connection_limits import raise_descriptor_limit
from phalanx.runtime.event_loop import new_event_loop
from phalanx.runtime.failure import ProcessEnd
from phalanx.runtime.member import Member, start_member
from phalanx.runtime.memory_limit import shared_limit
from phalanx.runtime.safe_logger import SafeLogger

logger = SafeLogger("phalanx.member")

TELL_EVERY_S = 0.5
"""Between two looks at what a leaving member still holds. A line is printed if it has become less."""
TELL_STILL_S = 5.0
"""A line is also printed if nothing has become less for so long."""
LEAVE_WITHIN_S = 60.0
"""A member that is told to leave does so by then, handed over or not."""
LAST_LINES_WITHIN_S = 2.0
"""How long to wait at the end until the last log lines are written: nobody may be reading stderr."""
YOUNG_COLLECTION_AT = 20_000
"""Container objects made since the last young collection before the next. Messages and entries are not among them."""


class LogLevel(enum.StrEnum):
    """The log level."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def member(
    host: Annotated[
        str | None,
        typer.Option(help="Address to listen on; beyond loopback with a secret only.", show_default="127.0.0.1"),
    ] = None,
    port: Annotated[
        str | None,
        typer.Option(
            help="Port to listen on; 0: any free one; 5701-5720: the first free one of these.",
            show_default=str(DEFAULT_PORT),
        ),
    ] = None,
    advertise: Annotated[
        str | None, typer.Option(metavar="HOST", help="Where others reach this member.", show_default="--host")
    ] = None,
    also_known_as: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Another address under which this member is reached (a mapped port, a virtual address); repeatable.",
        ),
    ] = None,
    secret_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File with the cluster's secret.", show_default=f"the one {SECRET_FILE_VARIABLE} names"
        ),
    ] = None,
    seed: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SEED",
            help="A member to join through: HOST:PORT, dns:NAME:PORT or file:PATH; repeatable. None: begin a cluster.",
        ),
    ] = None,
    join_attempts: Annotated[
        int | None,
        typer.Option(help="Rounds over all seeds, of 5 s each, before it gives up.", show_default="5"),
    ] = None,
    cluster: Annotated[str | None, typer.Option(help="Name of the cluster.", show_default="phalanx")] = None,
    functions: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE", help="Module, found from here, with functions that change values; repeatable."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML file with any settings of phalanx.Config.")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any setting of phalanx.Config; repeatable. The variable PHALANX_NAME gives it, too, and a flag wins over it.",
        ),
    ] = None,
    backup_count: Annotated[
        int | None, typer.Option(help="Synchronous backups of each partition.", show_default="1")
    ] = None,
    partition_count: Annotated[
        int | None, typer.Option(help="Partitions, the same on every member.", show_default="271")
    ] = None,
    zone: Annotated[
        str | None, typer.Option(help="Rack or availability zone: backups are kept in other ones.", show_default="none")
    ] = None,
    weight: Annotated[
        float | None, typer.Option(help="How much this member is to hold, beside others.", show_default="1.0")
    ] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory of this process, such as 2GiB, or 80% of what its cgroup or machine allows: then it refuses what grows it.",
            show_default="80%",
        ),
    ] = None,
    lite: Annotated[
        bool | None, typer.Option("--lite", help="Hold no data: only serve callers.", show_default="off")
    ] = None,
    event_log: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for this member's events, one JSON object a line.")
    ] = None,
    protocols: Annotated[
        str | None,
        typer.Option(
            "--serve",
            metavar="NAMES",
            help="Protocols to speak besides the own: hazelcast (docs/hazelcast.md), redis (docs/redis.md).",
            show_default="none",
        ),
    ] = None,
    serve_token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Token, or name:password, of the clients of these.", show_default="none"),
    ] = None,
    http_port: Annotated[
        str | None,
        typer.Option(
            help="Port of metrics, probes and answers in JSON (docs/how-to/monitor.md); 0: any free one; or a range.",
            show_default="none",
        ),
    ] = None,
    http_host: Annotated[
        str | None,
        typer.Option(
            help="Address to listen on for HTTP; beyond loopback with a token only.", show_default="127.0.0.1"
        ),
    ] = None,
    log_level: Annotated[LogLevel, typer.Option(help="Log lines go to stderr.")] = LogLevel.INFO,
    log_format: Annotated[
        LogFormat, typer.Option(help="json: one object a line, for what collects logs.")
    ] = LogFormat.TEXT,
    json_ready: Annotated[
        bool, typer.Option("--json", help="When joined, print one JSON line on stdout: address, member, view.")
    ] = False,
    processes: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Run N members as processes of their own, on ports from --port on: one for each core. One signal stops all.",
        ),
    ] = 1,
    stop_with_stdin: Annotated[
        bool, typer.Option("--stop-with-stdin", help="Leave at once when stdin ends: for programs that start members.")
    ] = False,
) -> None:
    """Run a member of a cluster until SIGTERM or SIGINT.

    The first signal makes it hand over what it holds and leave; a second one makes it leave at once.
    """
    flags = {
        "host": host,
        "port": port,
        "advertise": advertise,
        "also_known_as": also_known_as or None,
        "secret_file": str(secret_file) if secret_file is not None else None,
        "seeds": seed or None,
        "join_attempts": join_attempts,
        "cluster": cluster,
        "functions": functions or None,
        "backup_count": backup_count,
        "partition_count": partition_count,
        "zone": zone,
        "capacity_weight": weight,
        "memory_limit": memory_limit,
        "lite": lite,
        "event_log": str(event_log) if event_log is not None else None,
        "serve": [name.strip() for name in protocols.split(",")] if protocols is not None else None,
        "serve_token_file": str(serve_token_file) if serve_token_file is not None else None,
        "http_port": http_port,
        "http_host": http_host,
    }
    sys.path.insert(0, os.getcwd())  # where modules with functions are looked for first
    flags = {name: value for name, value in flags.items() if value is not None}
    settings = load_config(config, **(read_assignments(assignments or []) | flags))
    settings.find_secret()  # a file that cannot be read is wrong usage, too
    lines = log_to_stderr(log_level.value.upper(), log_format)
    if processes > 1:
        status = _run_group(
            processes, settings, flags, assignments or [], config, log_level, log_format, tells=json_ready
        )
        lines.finish(LAST_LINES_WITHIN_S)
        raise typer.Exit(status)
    raise_descriptor_limit()
    on_failure = ProcessEnd(lines.finish)
    on_ready = print_ready if json_ready else None
    status = 0
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            runner.run(serve(settings, on_ready, stop_with_stdin=stop_with_stdin, on_failure=on_failure))
        except PhalanxError as error:  # from here on nothing is wrong usage: a port is taken, a seed does not admit us
            lines.tell(in_one_line(str(error)))
            status = FAILED
    lines.finish(LAST_LINES_WITHIN_S)
    raise typer.Exit(status)


def _run_group(
    count: int,
    settings: Config,
    flags: dict[str, Any],
    assignments: list[str],
    file: Path | None,
    log_level: LogLevel,
    log_format: LogFormat,
    *,
    tells: bool,
) -> int:
    """Run several members with these settings, and return the exit status."""
    ports = settings.ports
    if ports[0] and ports[0] + count > 65_536:
        raise UsageError(f"--processes {count} with --port {ports[0]}: there are no ports beyond 65535")
    if 1 < len(ports) < count:
        raise UsageError(f"--processes {count} with --port {settings.port}: these are {len(ports)} ports")
    if len(settings.http_ports) and settings.http_ports != range(1) and len(settings.http_ports) < count:
        raise UsageError(
            f"--processes {count} with http_port {settings.http_port}: give a range of as many ports, or 0 for any free ones"
        )
    if settings.also_known_as:
        raise UsageError("--also-known-as names one member: give it to a member that is started alone")
    own, names = ("port", "seeds", "memory_limit"), {"capacity_weight": "--weight"}
    options = [
        "--log-level",
        log_level.value,
        f"--log-format={log_format.value}",
        f"--memory-limit={shared_limit(settings.memory_limit, count)}",
    ]
    if file is not None:
        options += ["--config", str(file)]
    options += [f"--set={each}" for each in assignments if each.partition("=")[0] not in own]
    for name, value in flags.items():
        if name == "lite":
            options += ["--lite"] if value else []
        elif name == "functions":
            options += [f"--functions={module}" for module in value]
        elif name == "serve":
            options.append(f"--serve={','.join(value)}")
        elif name not in own:
            options.append(f"{names.get(name) or '--' + name.replace('_', '-')}={value}")
    seeds = [str(seed) for seed in settings.seeds]
    return MemberGroup(count, ports[0], seeds, options, tells=tells).run()


async def serve(
    config: Config,
    on_ready: Callable[[Member], None] | None,
    *,
    stop_with_stdin: bool = False,
    on_failure: Callable[[Member | None, BaseException], None] | None = None,
) -> None:
    """Join, serve, and leave when told to. Raises what ends the member otherwise.

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
        return
    running = starting.result()
    _settle_gc()
    tell_service_manager(READY, f"{running.address} is a member of cluster {config.cluster}")
    if on_ready is not None:
        on_ready(running)
    ended = asyncio.create_task(running.wait_ended())
    await _first_of(ended, stops.leave)
    if not ended.done():
        tell_service_manager(STOPPING, f"{running.address} hands over what it holds")
        logger.info("%s leaves, within %g s; send the signal again to leave at once", running.address, LEAVE_WITHIN_S)
        held, view = running.replicas_held, running.view
        if held and view is not None and all(member == running.id for member in view.data_members):
            logger.warning("%s holds %d replicas, and nobody is there to take them over", running.address, held)
        leaving = asyncio.create_task(running.stop(drain=not stops.leave_now.is_set(), timeout_s=LEAVE_WITHIN_S))
        telling = asyncio.create_task(_tell_progress(running))
        telling.add_done_callback(_only_told)
        await _first_of(leaving, stops.leave_now)
        telling.cancel()
        if not leaving.done():
            logger.warning("%s leaves at once: %d replicas are not handed over; what has no backup is lost",
                           running.address, running.replicas_held)  # fmt: skip
            await running.stop(drain=False)
        await leaving
        if running.has_left:
            logger.info("%s has left: %s", running.address, _what_became(held, running.replicas_held))
        logger.info("%s has stopped", running.address)
    await ended


def _end_with_errors_of_the_loop(on_failure: Callable[[Member | None, BaseException], None]) -> None:
    """End the process with an error that a callback raises: by default the loop only logs it and goes on."""

    def on_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        loop.default_exception_handler(context)
        if not is_harmless(context):
            on_failure(None, context["exception"])

    asyncio.get_running_loop().set_exception_handler(on_error)


def _what_became(held: int, left: int) -> str:
    """Say what became of the replicas that a member had when it began to leave."""
    if left:
        return f"with it went {left} replicas that nobody took over"
    return "others hold what it held" if held else "it held nothing"


async def _tell_progress(running: Member) -> None:
    """Say how many replicas are left to hand over as they become fewer, where they go, and what is waited for."""
    told_at, held = time.monotonic(), running.replicas_held
    fewest = held + 1
    while (view := running.view) is not None:
        left, receivers = running.replicas_held, running.receivers()
        to = f"; sends to {', '.join(receivers)}" if receivers else ""
        if 0 < left < fewest:
            told_at, fewest = time.monotonic(), left
            logger.info("%s has %d of %d replicas left to hand over%s", running.address, left, held, to)
        elif time.monotonic() - told_at >= TELL_STILL_S:
            told_at = time.monotonic()
            has = f"still has {left} replicas" if left else "has nothing left"
            waits = "" if view.master == running.id else f"; waits for the master, {address_of(view.master)}"
            logger.warning("%s %s to hand over%s", running.address, has, to or waits)
        await asyncio.sleep(TELL_EVERY_S)


def _only_told(telling: asyncio.Task[None]) -> None:
    """Log an error of a task that only informs people: it must not end the member."""
    if not telling.cancelled() and (error := telling.exception()) is not None:
        logger.warning("what is left to hand over cannot be told: %r", error)


class _Stops:
    """The signals and the end of stdin, which tell a member process to stop."""

    def __init__(self, *, stop_with_stdin: bool) -> None:
        self.leave = asyncio.Event()
        self.leave_now = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_signal)
        if stop_with_stdin:
            threading.Thread(target=self._watch_stdin, name="stdin", daemon=True).start()

    def _on_signal(self) -> None:
        if self.leave.is_set():
            self.leave_now.set()
        self.leave.set()

    def _watch_stdin(self) -> None:
        """Read stdin until it ends, in a thread: the loop cannot wait for files and /dev/null, which end at once."""
        with contextlib.suppress(OSError):
            while os.read(sys.stdin.fileno(), 4096):
                pass
        with contextlib.suppress(RuntimeError):  # the loop is closed: the member stops anyway
            self._loop.call_soon_threadsafe(self._on_stdin_end)

    def _on_stdin_end(self) -> None:
        self.leave_now.set()
        self.leave.set()


async def _first_of(task: asyncio.Task[object], event: asyncio.Event) -> None:
    """Until the task is done or the event is set. The task goes on."""
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
        logger.warning("nobody reads stdout, where this member was to say that it is ready: %s", error)


def _settle_gc() -> None:
    """Exempt what is loaded by now from garbage collection, and collect young objects less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_COLLECTION_AT, *gc.get_threshold()[1:])
