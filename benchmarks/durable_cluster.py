"""What restarts of whole clusters cost: part of `./run bench durable`.

* All three members are killed at once (SIGKILL), and started again at once: until a first write is answered.
* One member after the other is stopped (SIGTERM) and started again, while programs write at a steady rate: how many entries go between
  members, as a multiple of what was written meanwhile, and how long the longest write takes. Each write goes to one backup, so the
  multiple is 1 if nothing is copied.
"""

from __future__ import annotations

import random
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

import phalanx
from benchmarks.plan import MAP
from benchmarks.servers import disk_options
from phalanx.common.errors import PhalanxError
from phalanx.common.ids import Address, host_and_port
from phalanx.runtime.logs.rotating_log import read_logs
from phalanx.runtime.process.processes import MemberProcess, start_member_process
from phalanx.wire.table_events import MigrationCopied

MEMBERS = 3
WRITERS = 4
WRITES_EACH_S = 500
VALUE = b"v" * 200
BULK = 5_000
READY_S = 120.0
PAUSE_S = 0.02
SETTLED_S = 5.0
"""How long nothing else happens after the last restart: copies that begin late count, too."""


class _Line(msgspec.Struct):
    """What is read of a line of an event log."""

    event: str = ""
    entries: int = 0


_LINE = msgspec.json.Decoder(_Line)


class ClusterRestart(msgspec.Struct):
    """All members were killed, and started again."""

    name: str
    entries: int
    seconds: list[float]
    """From the start of the processes until a write was answered."""


class RollingRestart(msgspec.Struct):
    """One member after the other was stopped, and started again."""

    name: str
    entries: int
    written: int
    copied: int
    """Entries that copies brought to members."""
    longest_write_s: float
    goal: float = 1.3
    """For `moved`, at most."""

    @property
    def moved(self) -> float:
        """What went between members, as a multiple of what was written."""
        return (self.written + self.copied) / max(self.written, 1)


class _Cluster:
    """Members with folders, one replica and one backup of each partition."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._members: dict[int, MemberProcess] = {}
        self.addresses: list[Address] = []
        for number in range(MEMBERS):
            member = self._start(number, 0)
            self.addresses.append(member.address)

    def _start(self, number: int, port: int) -> MemberProcess:
        seeds = [address for other, address in enumerate(self.addresses) if other != number]
        member = start_member_process(
            self._folder / f"{number}.log", port=port, seeds=seeds, backup_count=1, event_log=self._folder / f"events-{number}",
            options=disk_options(self._folder / f"data-{number}"),
        )  # fmt: skip
        self._members[number] = member
        return member

    def restart_all(self) -> None:
        for member in self._members.values():
            member.signal(signal.SIGKILL)
        for member in self._members.values():
            member.process.wait()
        for number, address in enumerate(self.addresses):
            self._start(number, host_and_port(address)[1])

    def restart(self, number: int) -> None:
        self._members[number].signal(signal.SIGTERM)
        self._members[number].process.wait(READY_S)
        self._start(number, host_and_port(self.addresses[number])[1]).wait_ready(READY_S)

    def wait_whole(self) -> None:
        """Wait until all members hold what they should."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            try:
                with phalanx.Client(self.addresses) as client:
                    table = client.partition_table()
                    full = all(len(table.replicas(partition)) == 2 for partition in range(table.partition_count))
                    if full and all(client.replicas(member).unconfirmed == 0 for member in table.members):
                        return
            except PhalanxError:
                pass  # a member has just gone
            time.sleep(PAUSE_S)
        raise TimeoutError(f"the cluster is not whole after {READY_S:g} s")

    def copied(self) -> int:
        """Return how many entries copies have brought to members so far."""
        logs = [log for number in range(MEMBERS) for log in read_logs(self._folder / f"events-{number}")]
        events = (_LINE.decode(line) for log in logs for line in log.splitlines())
        return sum(each.entries for each in events if each.event == MigrationCopied.__name__)

    def end(self) -> None:
        for member in self._members.values():
            member.signal(signal.SIGKILL)
            member.process.wait()


class _Writers:
    """Programs that write at a steady rate."""

    def __init__(self, addresses: list[Address], entries: int) -> None:
        self.written = 0
        self.longest_s = 0.0
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._write, args=(addresses, entries, seed)) for seed in range(WRITERS)
        ]
        for thread in self._threads:
            thread.start()

    def _write(self, addresses: list[Address], entries: int, seed: int) -> None:
        draw, pause_s = random.Random(seed), WRITERS / WRITES_EACH_S
        with phalanx.Client(addresses) as client:
            values = client.map(MAP)
            while not self._is_over.wait(pause_s):
                began_s = time.perf_counter()
                values.put(draw.randrange(entries), VALUE)
                took_s = time.perf_counter() - began_s
                with self._lock:
                    self.written += 1
                    self.longest_s = max(self.longest_s, took_s)

    def end(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()


def measure_cluster_restarts(
    entries: int, rounds: int, is_wanted: Callable[[str], bool]
) -> tuple[list[ClusterRestart], list[RollingRestart]]:
    """Fill three members, and restart them."""
    all_at_once = ClusterRestart(f"kill -9 of {MEMBERS}, until the first write", entries, [])
    one_by_one = RollingRestart(f"SIGTERM of one after the other of {MEMBERS}, under writes", entries, 0, 0, 0.0)
    wants = is_wanted(all_at_once.name), is_wanted(one_by_one.name)
    if not any(wants):
        return [], []
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:
        cluster = _Cluster(Path(folder))
        try:
            with phalanx.Client(cluster.addresses) as client:
                values = client.map(MAP)
                for first in range(0, entries, BULK):
                    values.put_all(dict.fromkeys(range(first, min(first + BULK, entries)), VALUE))
            cluster.wait_whole()
            if wants[1]:
                _restart_one_by_one(cluster, one_by_one)
            for _ in range(rounds if wants[0] else 0):
                all_at_once.seconds.append(_restart_all(cluster))
                cluster.wait_whole()
        finally:
            cluster.end()
    return [all_at_once] * wants[0], [one_by_one] * wants[1]


def _restart_all(cluster: _Cluster) -> float:
    cluster.restart_all()
    began_s = time.perf_counter()
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        try:
            with phalanx.Client(cluster.addresses) as client:
                client.map(MAP).put(0, VALUE)
            return time.perf_counter() - began_s
        except PhalanxError:
            time.sleep(PAUSE_S)
    raise TimeoutError(f"no write was answered within {READY_S:g} s")


def _restart_one_by_one(cluster: _Cluster, found: RollingRestart) -> None:
    before = cluster.copied()
    writers = _Writers(cluster.addresses, found.entries)
    try:
        for number in range(MEMBERS):
            cluster.restart(number)
            cluster.wait_whole()
        time.sleep(SETTLED_S)
    finally:
        writers.end()
    found.written, found.longest_write_s = writers.written, writers.longest_s
    found.copied = cluster.copied() - before


def shown(all_at_once: list[ClusterRestart], one_by_one: list[RollingRestart]) -> list[str]:
    """Return a line for each measurement."""
    lines = [
        f"{each.name}: {statistics.median(each.seconds):.2f} s ({min(each.seconds):.2f} to {max(each.seconds):.2f}), {each.entries:,} entries"
        for each in all_at_once
    ]
    return lines + [
        f"{each.name}: {each.moved:.2f} times what was written went between members (goal {each.goal:g}): {each.written:,} writes, "
        f"{each.copied:,} of {each.entries:,} entries copied; longest write {each.longest_write_s * 1000:.0f} ms"
        for each in one_by_one
    ]
