"""Members with a range of ports: each takes a free one, and those that start together become one cluster."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

import phalanx
from phalanx.net.dialing import Place
from phalanx.runtime.discovery import port_range
from phalanx.runtime.discovery.neighbours import notes_folder
from phalanx.runtime.discovery.port_range import FormingLock, find_members
from support.processes import free_ports, wait_for

SIZE = 8
"""How many ports the ranges of these tests have."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Members of other tests note themselves elsewhere."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return notes_folder()


@pytest.fixture
def ports() -> str:
    """A range of ports that nobody listens at."""
    return free_ports(SIZE)


def start(ports: str | int, **settings: int | str) -> phalanx.MemberThread:
    return phalanx.start_member_in_thread(phalanx.Config(port=ports, **settings))  # type: ignore[arg-type]


def port_of(member: phalanx.MemberThread) -> int:
    return int(member.address.rpartition(":")[2])


@pytest.mark.parametrize(
    ("given", "kept", "ports"),
    [
        (5701, 5701, range(5701, 5702)),
        ("5701", 5701, range(5701, 5702)),
        (0, 0, range(1)),
        ("5701-5720", "5701-5720", range(5701, 5721)),
        (" 5701 - 5720 ", "5701-5720", range(5701, 5721)),
        ("5701-5701", "5701-5701", range(5701, 5702)),
        ("65400-65535", "65400-65535", range(65400, 65536)),
    ],
)
def test_a_port_is_a_number_or_a_range(given: int | str, kept: int | str, ports: range) -> None:
    config = phalanx.Config(port=given)
    assert (config.port, config.ports) == (kept, ports)


@pytest.mark.parametrize(
    "given",
    ["", "x", "-1", "1-2-3", "5720-5701", "0-10", "1-65535", "65000-65536", 65536, -1, "5701-", "٣", "99999999999", True, 5.0],
)  # fmt: skip
def test_what_is_no_port_is_refused(given: int | str) -> None:
    with pytest.raises(phalanx.UsageError, match=r"^port: "):
        phalanx.Config(port=given)


def test_members_that_start_together_are_one_cluster(ports: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        members = list(pool.map(start, [ports] * 4))
    try:
        first = int(ports.partition("-")[0])
        assert sorted(map(port_of, members)) == [first, first + 1, first + 2, first + 3]
        for member in members:
            wait_for(lambda each=member: len(each.view.members) == 4, "all have joined")  # type: ignore[misc]
    finally:
        for member in members:
            member.stop(drain=False)


PROGRAM = """
import sys, phalanx
with phalanx.start_member_in_thread(phalanx.Config(port=sys.argv[1])) as grid:
    print(grid.address, flush=True)
    sys.stdin.read()
    while grid.map("numbers").increment("n") % 4:
        pass
    print(len(grid.view.members), flush=True)
"""


def test_processes_that_start_together_are_one_cluster(ports: str, tmp_path: Path) -> None:
    """Each is killed if it does not end: nothing here waits without end."""
    program = tmp_path / "worker.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), ports]
    workers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    try:
        addresses = {worker.stdout.readline() for worker in workers if worker.stdout is not None}
        assert len(addresses) == 4
        with phalanx.Client(addresses.pop().strip()) as client:
            client.map("numbers")["n"] = 0
            assert len(client.members().view.members) == 4
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def test_one_that_comes_later_joins_and_one_that_comes_back_too(ports: str) -> None:
    with start(ports) as first:
        first.map("m")["k"] = 1
        with start(ports) as second:
            assert second.map("m")["k"] == 1
            first.stop()
            assert second.map("m")["k"] == 1
            with start(ports) as again:
                assert again.map("m")["k"] == 1
                assert again.address == first.address


def test_a_range_without_a_free_port_is_refused(ports: str) -> None:
    with ExitStack() as stack:
        for port in phalanx.Config(port=ports).ports:
            stack.enter_context(socket.create_server(("127.0.0.1", port)))
        with pytest.raises(phalanx.UsageError, match=f"at none of the ports {ports}"):
            start(ports, cluster="full")


def test_a_member_listens_at_all_addresses_of_its_name_that_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one is of a network that exists for documents only."""

    async def look_up(loop: object, host: str, port: int) -> list[Place]:
        families = {"127.0.0.1": socket.AF_INET, "::1": socket.AF_INET6, "192.0.2.7": socket.AF_INET}
        return [(family, socket.SOCK_STREAM, 6, "", (each, port)) for each, family in families.items()]

    monkeypatch.setattr(port_range, "look_up", look_up)
    with start(0, host="localhost") as member:
        taken = port_of(member)
        for each in ("127.0.0.1", "::1"):
            socket.create_connection((each, taken)).close()
        with pytest.raises(phalanx.UsageError, match=f"cannot listen on localhost:{taken}: Address already in use"):
            start(taken, host="localhost")
    with (
        socket.create_server(("::1", 0), family=socket.AF_INET6) as other,  # free at the first address only
        pytest.raises(phalanx.UsageError, match="Address already in use"),
    ):
        start(other.getsockname()[1], host="localhost")


def test_others_at_its_ports_are_passed_over(ports: str) -> None:
    """A cluster of another name, and a server that says nothing."""
    first = phalanx.Config(port=ports).ports[0]
    with socket.create_server(("127.0.0.1", first)), start(ports, cluster="other") as other, start(ports) as member:
        assert (port_of(other), port_of(member)) == (first + 1, first + 2)
        assert member.view is not None
        assert len(member.view.members) == 1


def test_with_seeds_the_lock_is_not_needed(ports: str, folder: Path) -> None:
    with phalanx.start_member_in_thread(phalanx.Config(port=0)) as seed:
        folder.mkdir(exist_ok=True)
        config = phalanx.Config(port=ports, seeds=[seed.address])
        with phalanx.start_member_in_thread(config) as member:
            assert member.view is not None
            assert len(member.view.members) == 2
            assert port_of(member) == config.ports[0]
        assert not list(folder.glob("forming-*"))


def test_nobody_forms_a_cluster_beside_a_member_that_hangs(ports: str, tmp_path: Path) -> None:
    program = tmp_path / "worker.py"
    program.write_text(PROGRAM)
    hung = subprocess.Popen(
        [sys.executable, str(program), ports], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert hung.stdout is not None
        hung.stdout.readline()
        wait_for(lambda: list(notes_folder().glob(f"{hung.pid}-*")), "it has noted itself")
        hung.send_signal(signal.SIGSTOP)
        with pytest.raises(phalanx.JoinFailed, match="no answer"):
            start(ports, join_attempts=1, join_timeout_ms=1_000)
        hung.send_signal(signal.SIGCONT)
        with start(ports) as member:
            assert member.view is not None
            assert len(member.view.members) == 2
    finally:
        hung.kill()
        hung.communicate()


def test_a_process_that_holds_the_lock_for_too_long_is_named(ports: str, folder: Path) -> None:
    async def hold() -> None:
        seeds, lock = await find_members(phalanx.Config(port=ports))
        assert seeds == ()
        config = phalanx.Config(port=ports, join_attempts=1, join_timeout_ms=100)
        with pytest.raises(phalanx.JoinFailed, match=f"{folder}/forming-"):
            await phalanx.start_member(config)
        lock.release()
        lock.release()
        member = await phalanx.start_member(config)
        await member.stop()

    asyncio.run(hold())


def test_the_lock_of_a_process_that_has_ended_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    child = os.fork()
    if not child:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os._exit(0)
    os.waitpid(child, 0)
    lock = FormingLock(path)
    asyncio.run(lock.acquire(5))
    lock.release()


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = FormingLock(path)
    asyncio.run(lock.acquire(5))
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    try:
        lock.release()
        other = FormingLock(path)
        asyncio.run(other.acquire(0))
        other.release()
    finally:
        os.close(writer)
        os.close(reader)
        os.waitpid(child, 0)


def test_without_a_folder_of_its_own_it_says_what_to_do(
    ports: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    with pytest.raises(phalanx.UsageError, match="set XDG_RUNTIME_DIR to a folder of this user, or give seeds"):
        start(ports)


FORKING = """
import multiprocessing, os, sys, phalanx
grid = phalanx.start_member_in_thread(phalanx.Config(port=sys.argv[1]))
hits = grid.map("hits")
hits["n"] = 0

def work():
    for _ in range(50):
        hits.increment("n")
    assert grid.is_running and hits["n"] >= 50 and len(grid.view.members) > 1
    with grid.lock("l"):
        pass

context = multiprocessing.get_context("fork")
workers = [context.Process(target=work) for _ in range(3)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
print([worker.exitcode for worker in workers], hits["n"], len(grid.view.members), flush=True)
child = os.fork()
if not child:
    print(grid.is_running, flush=True)
    grid.stop()
    os._exit(0)
os.waitpid(child, 0)
hits["n"] = -1
"""


def test_each_forked_process_has_a_member_of_its_own(ports: str, tmp_path: Path) -> None:
    """As under a server that loads the program and then forks its workers. Each leaves when it ends, not as in a crash."""
    program = tmp_path / "server.py"
    program.write_text(FORKING)
    ended = subprocess.run([sys.executable, program, ports], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout.splitlines()) == (0, ["[0, 0, 0] 150 1", "False"]), ended.stderr
    assert "Traceback" not in ended.stderr


def test_threads_of_a_forked_process_start_one_member(ports: str, tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text("""
import os, sys, threading, phalanx
grid = phalanx.start_member_in_thread(phalanx.Config(port=sys.argv[1]))
child = os.fork()
if not child:
    seen = []
    threads = [threading.Thread(target=lambda: seen.append((grid.map("m").increment("n"), grid.address))) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(sorted(number for number, _ in seen) == list(range(1, 9)), len({address for _, address in seen}), flush=True)
    sys.exit(0)
os.waitpid(child, 0)
print(grid.map("m")["n"])
grid.stop()
if not os.fork():
    try:
        grid.map("m")["n"]
    except phalanx.ClientClosed as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
""")
    ended = subprocess.run([sys.executable, program, ports], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout.splitlines()) == (
        0,
        ["True 1", "8", "this member stopped; nothing was changed; start another member"],
    ), ended.stderr


def test_members_of_the_command_line_share_a_range(ports: str) -> None:
    command = [sys.executable, "-m", "phalanx", "member", "--port", ports, "--json"]
    members = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        lines = [member.stdout.readline() for member in members if member.stdout is not None]
        assert sorted(len(line) > 2 for line in lines) == [True, True]
        with phalanx.Client(f"127.0.0.1:{ports.partition('-')[0]}") as client:
            assert len(client.members().view.members) == 2
    finally:
        for member in members:
            member.kill()
            member.communicate()


def test_a_thread_that_begins_in_a_child_does_not_wait_for_one_of_the_parent(ports: str) -> None:
    """The parent forks while another of its threads starts a member after a fork of its own: here the lock is simply held."""
    with start(ports) as member:
        member._beginning.acquire()
        child = os.fork()
        if not child:
            done = threading.Event()
            threading.Timer(30, lambda: os._exit(1)).start()
            member.map("m")["k"] = 1
            done.set()
            member.stop()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        member._beginning.release()
        assert status == 0
        assert member.map("m")["k"] == 1


@pytest.fixture(autouse=True)
def no_threads_stay() -> Iterator[None]:
    yield
    wait_for(lambda: not [each for each in threading.enumerate() if each.name == "phalanx-member"], "all threads end")
