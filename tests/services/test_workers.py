"""Servers with forked and spawned workers, of which one after another is killed under load: nothing is lost or mixed up."""

from __future__ import annotations

import http.client
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import phalanx
from phalanx.client.ask import Inquirer
from phalanx.common.errors import UnavailableError
from phalanx.common.ids import Address, address_of
from support.processes import free_port, free_ports, wait_for

HERE = Path(__file__).parent
WORKERS = 4
SECONDS = float(os.environ.get("WORKERS_SECONDS", "5"))
"""How long a server is loaded; the longer, the more workers are killed."""
KILL_EVERY_S = 2.0
CALLERS = 8
GUNICORN = ["-m", "gunicorn", "--workers", str(WORKERS), "--threads", "4", "--log-level", "warning", "--bind"]
UVICORN = ["-m", "uvicorn", "--workers", str(WORKERS), "--log-level", "warning", "--port"]
SERVERS = {
    "gunicorn": lambda port: [*GUNICORN, f"127.0.0.1:{port}", "counting_wsgi:app"],
    "gunicorn --preload": lambda port: [*GUNICORN, f"127.0.0.1:{port}", "--preload", "counting_wsgi:app"],
    "uvicorn": lambda port: [*UVICORN, str(port), "counting_asgi:app"],
}


class Caller(threading.Thread):
    """One user, who counts under a name of its own, one call after another."""

    def __init__(self, port: int, name: str, is_over: threading.Event) -> None:
        super().__init__(name=name)
        self._port, self._is_over = port, is_over
        self.counted = self.unknown = 0
        """Calls that were answered with a sum, and calls of which nobody knows."""
        self.wrong: list[str] = []

    def run(self) -> None:
        while not self._is_over.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
            try:
                connection.connect()
            except OSError:
                time.sleep(0.05)  # nobody listens at the moment: nothing was asked
                continue
            with suppress(OSError, http.client.HTTPException):
                while not self._is_over.is_set():
                    self._count(connection)
            connection.close()

    def _count(self, connection: http.client.HTTPConnection) -> None:
        self.unknown += 1
        connection.request("GET", f"/count/{self.name}")
        reply = connection.getresponse()
        text = reply.read().decode()
        if reply.status == 503:
            self.unknown -= 1
        elif reply.status == 200:
            self.unknown -= 1
            self.counted += 1
            if not self.counted <= int(text) <= self.counted + self.unknown:
                self.wrong.append(f"{text} after {self.counted} and {self.unknown}")


@contextmanager
def serve(server: str, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int, dict[str, str]]]:
    """Run a server in a session of its own. Its log is shown if the test fails."""
    port = free_port()
    env = {
        **os.environ, "PORTS": free_ports(20), "CLUSTER": f"workers-{uuid.uuid4()}", "PYTHONPATH": str(HERE),
        "XDG_RUNTIME_DIR": str(tmp_path),
    }  # fmt: skip
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, *SERVERS[server](port)],
            env=env,
            cwd=tmp_path,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process, port, env
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        print((tmp_path / "log").read_text()[-20_000:])


def ask(port: int, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()


def workers_of(process: subprocess.Popen[bytes]) -> list[int]:
    """The workers among the server's children: others are helpers, such as multiprocessing's tracker."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in children if b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes()]


def is_whole(seeds: list[str], cluster: str) -> bool:
    """Whether all members know the same members and partition table, and hold all replicas, so that one of them can crash."""
    known, views, tables = set(), set(), set()
    for address in seeds:
        try:
            with Inquirer(Address(address), cluster=cluster) as asked:
                says = asked.safety()
        except UnavailableError:
            continue
        if says.lacking or says.unconfirmed or says.migrating or says.suspected:
            return False
        known.add(address)
        views.add(says.view)
        tables.add(says.table_version)
    return len(views) == len(tables) == 1 and {address_of(each) for each in views.pop().members} == known


@pytest.mark.timeout(SECONDS + 270)
@pytest.mark.parametrize(
    "server", [pytest.param(each, marks=pytest.mark.long) if each == "gunicorn" else each for each in SERVERS]
)
def test_workers_that_are_killed_lose_and_mix_up_nothing(server: str, tmp_path: Path) -> None:
    with serve(server, tmp_path) as (process, port, env):
        wait_for(lambda: ask(port, "/worker"), "the server listens")
        seen = set()
        members = WORKERS + (server == "gunicorn --preload")  # there the process that forks has one, too

        def is_complete() -> bool:
            pid, count, _ = (ask(port, "/worker") or "0 0 0").split()
            seen.add(pid)
            return len(seen) >= WORKERS and int(count) == members

        wait_for(is_complete, "each worker has a member")
        is_over = threading.Event()
        callers = [Caller(port, f"caller-{number}", is_over) for number in range(CALLERS)]
        for caller in callers:
            caller.start()
        draw, killed = random.Random(server), 0
        first = int(env["PORTS"].partition("-")[0])
        seeds = [f"127.0.0.1:{each}" for each in range(first, first + 20)]
        ends_at = time.monotonic() + SECONDS
        while time.monotonic() < ends_at - KILL_EVERY_S:
            time.sleep(KILL_EVERY_S)
            # A second crash before the copies of the first are there loses what both held, as it should.
            wait_for(lambda: is_whole(seeds, env["CLUSTER"]), "every partition has its backup", 90)
            with suppress(ProcessLookupError):
                os.kill(draw.choice(workers_of(process)), signal.SIGKILL)
                killed += 1
        time.sleep(KILL_EVERY_S)
        is_over.set()
        for caller in callers:
            caller.join(90)
        assert not any(caller.is_alive() for caller in callers)
        with phalanx.Client(seeds, cluster=env["CLUSTER"]) as client:
            sums = client.map("counts").get_all([caller.name for caller in callers])
            found = len(client.members().view.members)
        print(
            f"{server}: {sum(each.counted for each in callers)} counted, {sum(each.unknown for each in callers)} unknown, {killed} killed"
        )
        for caller in callers:
            assert caller.wrong == []
            assert caller.counted <= sums[caller.name] <= caller.counted + caller.unknown
        assert killed
        assert sum(caller.counted for caller in callers) > 100
        assert found > 1, "under --preload a new worker has a member from its first request on"
        # Else the last one would wait for those that were killed, which may come back with what they had.
        taker = phalanx.start_member_in_thread(phalanx.Config(port=0, cluster=env["CLUSTER"], seeds=tuple(seeds)))
        process.terminate()
        assert process.wait(90) == 0
        wait_for(lambda: not session_of(process.pid), "all its processes end")
        assert taker.map("counts", key=str, value=int).get_all(sums) == sums
        taker.stop(drain=False)


def session_of(leader: int) -> list[int]:
    """The processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(ProcessLookupError):
                if os.getsid(int(entry.name)) == leader:
                    found.append(int(entry.name))
    return found
