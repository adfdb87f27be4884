"""How long a member, or a redis-server, that was killed takes until it serves all of its entries again: part of `./run bench durable`.

Each is killed with SIGKILL and started on its folder again; the time is from the start of the process until a client has
got the number of entries, and one of them. The system's cache still has the files, for both.

* From mutations: each entry was written once, by bulk writes, and the log has those writes.
* From copies: each was written again and again, until the log was so long that the member has copied its replicas to it; so the log
  has copies, and writes behind them.
* Redis from an AOF without preamble (commands alone), and from one that was rewritten with its RDB preamble (what copies are to a
  member's log).
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

import phalanx
from benchmarks.plan import MAP, make_entries
from benchmarks.servers import ServerFailed, disk_options, redis_server
from phalanx.common.errors import PhalanxError
from phalanx.common.ids import host_and_port
from phalanx.runtime.process.processes import start_member_process

BULK = 1_000
READY_TIMEOUT_S = 300.0
PAUSE_S = 0.01
COPIED_FROM = 600_000_000
"""So many bytes of writes make a log long enough for copies."""
ENTRY_BYTES = 148
"""One entry in the log."""
FROM_AOF = "restart of Redis, from an AOF"
FROM_PREAMBLE = "restart of Redis, from an AOF with RDB preamble"


class Restart(msgspec.Struct):
    """One kind of restart."""

    name: str
    entries: int
    log_bytes: int
    """What the folder had, without room that is only reserved."""
    seconds: list[float]
    goal: float = 0.0
    """Entries a second that reading back is to reach; 0: none is set."""
    beside: str = ""
    """The name of the restart of Redis that is to take as long at least; empty: none."""


def measure_restarts(entries: int, rounds: int, has_redis: bool, is_wanted: Callable[[str], bool]) -> list[Restart]:
    """Fill servers, kill them, and start them again."""
    found = []
    times = max(3, COPIED_FROM // (entries * ENTRY_BYTES))
    for name, written, goal, beside in (
        ("restart of a member, from mutations", 1, 1_000_000, FROM_AOF),
        ("restart of a member, from copies and mutations", times, 3_000_000, FROM_PREAMBLE),
    ):
        if is_wanted(name):
            restart = _restart_member(name, entries, written, rounds)
            restart.goal, restart.beside = goal, beside
            found.append(restart)
    for name, is_rewritten in ((FROM_AOF, False), (FROM_PREAMBLE, True)):
        if has_redis and is_wanted(name):
            found.append(_restart_redis(name, entries, rounds, is_rewritten=is_rewritten))
    return found


def _restart_member(name: str, entries: int, times: int, rounds: int) -> Restart:
    """Restart a member with entries that were written so many times."""
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:
        data, log = Path(folder) / "data", Path(folder) / "member.log"

        def start(port: int = 0) -> Any:
            return start_member_process(log, port=port, backup_count=0, options=disk_options(data))

        with start() as member, phalanx.Client(str(member.address)) as client:
            wanted = client.map(MAP)
            for _ in range(times):
                for batch in batches_of(entries):
                    wanted.put_all(batch)
            port = host_and_port(member.address)[1]
            _kill(member)
        found = Restart(name, entries, _bytes_in(data), [])
        for _ in range(rounds):
            began = time.perf_counter()
            with start(port) as member:
                member.wait_ready(READY_TIMEOUT_S)
                with phalanx.Client(str(member.address)) as client:
                    _wait_for(partial(_entries_of, client), entries)
                    found.seconds.append(time.perf_counter() - began)
                _kill(member)
    return found


def _entries_of(client: phalanx.Client) -> int:
    wanted = client.map(MAP)
    return wanted.size() if wanted.get(_first_key()) is not None else 0


def _kill(member: Any) -> None:
    member.signal(signal.SIGKILL)
    member.process.wait()


def _restart_redis(name: str, entries: int, rounds: int, *, is_rewritten: bool) -> Restart:
    import redis

    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:

        @contextlib.contextmanager
        def start() -> Iterator[Any]:
            with redis_server(on_disk=True, folder=folder) as server, redis.Redis(port=server.port) as client:
                yield client
                os.kill(server.pid, signal.SIGKILL)

        with start() as client:
            for batch in batches_of(entries):
                client.mset(batch)
            if is_rewritten:
                client.bgrewriteaof()
                _wait_for(partial(_rewrites, client), 0)
        found = Restart(name, entries, _bytes_in(Path(folder)), [])
        for _ in range(rounds):
            began = time.perf_counter()
            with start() as client:
                _wait_for(partial(_entries_of_redis, client), entries)
                found.seconds.append(time.perf_counter() - began)
    return found


def _entries_of_redis(client: Any) -> int:
    return int(client.dbsize()) if client.get(_first_key()) is not None else 0


def _rewrites(client: Any) -> int:
    told = client.info("persistence")
    return int(told["aof_rewrite_in_progress"]) + int(told["aof_rewrite_scheduled"])


def _first_key() -> str:
    return make_entries(1)[0][0]


def batches_of(count: int) -> Iterator[dict[str, bytes]]:
    """Yield so many entries, for bulk writes."""
    for first in range(0, count, BULK):
        yield dict(islice(zip(*make_entries(min(BULK, count - first), first), strict=True), BULK))


def _wait_for(ask: Callable[[], int], wanted: int) -> None:
    """Ask until the answer is this one."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    found: object = None
    while time.monotonic() < deadline:
        try:
            if (found := ask()) == wanted:
                return
        except PhalanxError as error:
            found = error
        except Exception as error:  # of redis-py, which says so while a server loads
            if type(error).__name__ not in ("BusyLoadingError", "ConnectionError"):
                raise
            found = error
        time.sleep(PAUSE_S)
    raise ServerFailed(f"a server did not come back with {wanted} within {READY_TIMEOUT_S:g} s: {found}")


def _bytes_in(folder: Path) -> int:
    """The bytes of all files as far as their last one that is not zero, roughly: reserved room behind it does not count."""
    total = 0
    for path in folder.rglob("*"):
        if path.is_file():
            total += length_of(path)
    return total


def length_of(path: Path, step: int = 1 << 20) -> int:
    length = path.stat().st_size
    with path.open("rb") as content:
        while length > 0:
            begin = max(0, length - step)
            content.seek(begin)
            if filled := content.read(length - begin).rstrip(b"\0"):
                return begin + len(filled)
            length = begin
    return 0
