"""The processes that are measured: members and redis-server, unless told otherwise with nothing written to disk. Each ends with its context."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

import phalanx
from benchmarks.plan import MAP
from phalanx.common.errors import PhalanxError
from phalanx.common.ids import host_and_port
from phalanx.runtime.process.processes import start_member_process

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 5.0
PAUSE_S = 0.02


class ServerFailed(PhalanxError):
    """A process to be measured did not start. The message holds what it printed last."""


class Server(msgspec.Struct):
    """A running process and where it listens."""

    port: int
    pid: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


def redis_version() -> str | None:
    """The installed redis-server's version, if there is one and its Python client too."""
    if shutil.which("redis-server") is None or importlib.util.find_spec("redis") is None:
        return None
    words = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=False).stdout.split()
    return next((word.removeprefix("v=") for word in words if word.startswith("v=")), None)


def package_version(name: str) -> str | None:
    """The installed version of a package, None where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def metrics_of(port: int) -> str:
    """What the member with this HTTP port tells Prometheus."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=START_TIMEOUT_S) as reply:
        text: str = reply.read().decode()
    return text


@contextlib.contextmanager
def members(count: int, backup_count: int = 0, *, on_disk: bool = False) -> Iterator[list[Server]]:
    """A cluster of so many `phalanx member` processes whose partitions are assigned and fully replicated.

    `on_disk`: each has a `data_dir` of its own.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="phalanx-bench-")))
        servers: list[Server] = []
        for number in range(count):
            # Nobody uses the data before all have joined: the first assignment shares it among those present.
            seeds = [server.address for server in servers[:1]]
            log = folder / f"member-{number}.log"
            options = disk_options(folder / f"data-{number}") if on_disk else ()
            process = stack.enter_context(
                start_member_process(log, seeds=seeds, backup_count=backup_count, options=options)
            )
            servers.append(Server(host_and_port(process.address)[1], process.pid))
        with phalanx.Client([server.address for server in servers]) as client:
            client.map(MAP).size()
            table = client.partition_table()
            _wait(lambda: all(client.replicas(member).unconfirmed == 0 for member in table.members), "replicate")
        yield servers


def disk_options(data_dir: Path) -> tuple[str, ...]:
    """Options of a member that keeps its data in this folder, also where the file system is one of a container."""
    return ("--set", f"data_dir={data_dir}", "--set", "data_dir_is_lasting=true")


@contextlib.contextmanager
def redis_server(
    replica_of: Server | None = None, *, on_disk: bool = False, folder: str | None = None, sync: str = "everysec"
) -> Iterator[Server]:
    """A redis-server that keeps everything in memory only; with `replica_of`, a replica in sync with that one.

    `on_disk`: it writes an AOF, synced as `sync` says (`appendfsync`), and rewrites it only when it is asked to. `folder`: where; None: in
    one of its own.
    """
    import redis

    port = free_port()
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="phalanx-bench-"))
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
        command += ["--save", "", "--daemonize", "no", "--appendonly", "yes" if on_disk else "no"]
        command += ["--appendfsync", sync, "--auto-aof-rewrite-percentage", "0"]
        if replica_of is not None:
            command += ["--replicaof", "127.0.0.1", str(replica_of.port), "--repl-diskless-sync-delay", "0"]
        connection = stack.enter_context(redis.Redis(port=port))

        def is_ready(printed: str) -> bool:
            try:
                info = connection.info("replication")
            except redis.exceptions.RedisError:
                return False
            return replica_of is None or info["master_link_status"] == "up"

        yield stack.enter_context(_process(command, port, is_ready))


@contextlib.contextmanager
def redis_client() -> Iterator[tuple[Server, Any]]:
    """A redis-server, and a blocking client of it."""
    import redis

    with redis_server() as server, redis.Redis(port=server.port) as client:
        yield server, client


@contextlib.contextmanager
def _process(command: Sequence[str], port: int, is_ready: Callable[[str], bool]) -> Iterator[Server]:
    """A process from its start, when it is ready by what it printed or by asking it, to its end."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + START_TIMEOUT_S
            while not is_ready(printed := _printed(output)):
                if (status := process.poll()) is not None or time.monotonic() >= deadline:
                    state = f"ended with status {status}" if status is not None else "was not ready in time"
                    raise ServerFailed(f"{' '.join(command[:4])} … {state}; it printed: {printed[-1000:] or 'nothing'}")
                time.sleep(PAUSE_S)
            yield Server(port, process.pid)
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _printed(output: IO[bytes]) -> str:
    # Without seeking: the process writes at the position that both share.
    return os.pread(output.fileno(), 1 << 20, 0).decode(errors="replace").strip()


def _wait(is_done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not is_done():
        if time.monotonic() >= deadline:
            raise ServerFailed(f"the members did not {what} within {START_TIMEOUT_S:g} s")
        time.sleep(PAUSE_S)


def wait_stopped(pid: int) -> None:
    """Wait until a process that got a signal has ended or is stopped: it answers nothing any more."""
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while (state := _state_of(pid)) not in ("Z", "X", "T", ""):
        if time.monotonic() >= deadline:
            raise ServerFailed(f"process {pid} is in state {state} after its signal")
        time.sleep(0.0005)


def _state_of(pid: int) -> str:
    """The letter of a process' state; empty: there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
