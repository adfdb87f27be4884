"""Members on a thread of their own: what threads read and write, how the member starts and ends, what is refused."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.common.ids import Address, MemberId
from phalanx.runtime.local.local_map import LocalMap
from support.interrupts import interrupts_are_raised

WITHIN_S = 30.0


@pytest.fixture
def grid() -> Iterator[phalanx.MemberThread]:
    with phalanx.start_member_in_thread(phalanx.Config(port=0)) as member:
        yield member


@pytest.fixture
def pair(grid: phalanx.MemberThread) -> Iterator[list[phalanx.MemberThread]]:
    """Two members in one cluster, which own about the same number of partitions each."""
    grid.map("first")["k"] = 1  # a first write makes the master assign the partitions
    config = phalanx.Config(port=0, seeds=(Address(grid.address),))
    with phalanx.start_member_in_thread(config) as other:
        until(lambda: len(set(owners(grid))) == 2 and owners(grid) == owners(other), "both own partitions")
        yield [grid, other]


def owners(grid: phalanx.MemberThread) -> list[MemberId | None]:
    return grid.table.owners()


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError(f"not within {WITHIN_S:g} s: {what}")


def test_its_map_is_a_mapping_that_threads_share(grid: phalanx.MemberThread) -> None:
    numbers = grid.map("numbers")
    numbers["a"] = 1
    numbers.update({"b": 2, "c": 3})
    assert numbers["a"] == 1
    assert numbers.get("z") is None
    assert numbers.get("z", 7) == 7
    assert "a" in numbers
    assert "z" not in numbers
    assert len(numbers) == 3
    assert dict(numbers) == dict(numbers.items()) == {"a": 1, "b": 2, "c": 3}
    assert numbers.get_all(["a", "z"]) == {"a": 1}
    assert numbers.remove("a")
    assert "a" not in numbers
    with pytest.raises(KeyError):
        numbers["a"]
    with pytest.raises(phalanx.UsageError, match="object"):
        numbers.get(object())
    assert grid.map_names() == ["numbers"]
    assert grid.view is not None
    assert len(grid.view.members) == 1
    assert grid.is_running
    assert repr(grid) == f"MemberThread({grid.address})"


def test_others_see_what_threads_write(pair: list[phalanx.MemberThread]) -> None:
    first, other = pair
    for number in range(200):
        first.map("m")[number] = number
        assert other.map("m")[number] == number
        other.map("m")[number] = -number
        assert first.map("m")[number] == -number
    with phalanx.Client(first.address) as client:
        assert sorted(client.map("m").values()) == sorted(-number for number in range(200))


def test_what_the_member_owns_is_read_without_its_loop(grid: phalanx.MemberThread, monkeypatch: Any) -> None:
    entries = grid.map("m")
    entries["k"] = 1

    def refuse(*arguments: Any) -> Any:
        raise AssertionError("the member was asked")

    monkeypatch.setattr(grid._calls, "call", refuse)
    assert entries["k"] == 1
    assert "k" in entries
    assert "z" not in entries
    assert entries.get("z") is None
    with pytest.raises(AssertionError, match="was asked"):
        entries["k"] = 2


def test_a_read_that_the_member_s_thread_crosses_asks_the_member(grid: phalanx.MemberThread, monkeypatch: Any) -> None:
    """Between the look at the partition and the look at the entry the member writes it: the old value is not given."""
    entries = grid.map("m")
    entries["k"] = 1
    node = grid._member.node
    assert node is not None
    serves, call, me = node.serves, grid._calls.call, threading.current_thread()
    looks, asked = iter([True, False]), []

    def serve_once(now: int) -> bool:
        return next(looks, False) if threading.current_thread() is me else serves(now)

    def note(*arguments: Any) -> Any:
        asked.append(arguments)
        return call(*arguments)

    monkeypatch.setattr(node, "serves", serve_once)
    monkeypatch.setattr(grid._calls, "call", note)
    assert entries["k"] == 1
    assert len(asked) == 1


def test_an_entry_that_has_expired_is_not_read(grid: phalanx.MemberThread) -> None:
    grid.map("m").put("k", 1, ttl=0.05)
    until(lambda: "k" not in grid.map("m"), "the entry has expired")
    grid.map("idle").put("k", 1, max_idle=0.3)
    for _ in range(8):  # each read prolongs its life
        time.sleep(0.1)
        assert grid.map("idle")["k"] == 1
    for _ in range(20):
        time.sleep(0.5)
        if "k" not in grid.map("idle"):
            break
    assert "k" not in grid.map("idle"), "nobody has used it"


def test_threads_count_and_lock(pair: list[phalanx.MemberThread]) -> None:
    inside: list[int] = []

    def count(member: phalanx.MemberThread) -> None:
        for _ in range(50):
            member.map("m").increment("n")
        for _ in range(5):
            with member.lock("one at a time"):
                inside.append(1)
                assert len(inside) == 1
                inside.pop()

    with ThreadPoolExecutor(8) as pool:
        for each in [pool.submit(count, pair[number % 2]) for number in range(8)]:
            each.result(WITHIN_S)
    assert pair[0].map("m")["n"] == 400


def test_calls_go_on_while_a_member_leaves(pair: list[phalanx.MemberThread]) -> None:
    first, other = pair
    is_over = threading.Event()

    def work() -> int:
        done = 0
        while not is_over.is_set() or not done:
            first.map("m").increment("n")
            assert first.map("m")["n"] >= done
            done += 1
        return done

    with ThreadPoolExecutor(4) as pool:
        working = [pool.submit(work) for _ in range(4)]
        other.stop()
        is_over.set()
        counted = sum(each.result(WITHIN_S) for each in working)
    assert first.map("m")["n"] == counted


def test_a_program_that_blocks_its_event_loop_keeps_its_membership() -> None:
    """For three times as long as a member may be silent; a member in that loop would be removed."""
    timing: dict[str, Any] = {"port": 0, "heartbeat_interval_ms": 100, "heartbeat_timeout_ms": 1_000}

    async def block(first: phalanx.MemberThread) -> None:
        config = phalanx.Config(seeds=(Address(first.address),), **timing)
        with phalanx.start_member_in_thread(config) as other:
            members = first.view
            time.sleep(3)  # noqa: ASYNC251 - this is what such programs do
            assert first.view == members == other.view

    with phalanx.start_member_in_thread(phalanx.Config(**timing)) as first:
        asyncio.run(block(first))


def test_once_stopped_all_calls_say_so(grid: phalanx.MemberThread) -> None:
    entries = grid.map("m")
    entries["k"] = 1
    grid.stop()
    for call in (
        lambda: entries["k"],
        lambda: entries.put("k", 2),
        lambda: len(entries),
        lambda: entries.put_all({1: 2}),
        grid.map_names,
        lambda: grid.lock("l").acquire(),
    ):
        with pytest.raises(phalanx.ClientClosed, match="stopped"):
            call()
    grid.stop()
    assert not grid.is_running
    assert grid.wait_ended(0)
    assert repr(grid) == f"MemberThread({grid.address}, stopped)"


def test_calls_under_way_end_when_the_member_stops(grid: phalanx.MemberThread) -> None:
    """Some are done, and others learn that they were not, or that nobody knows; none waits any longer."""

    def write() -> None:
        while True:
            grid.map("m").increment("n")

    with ThreadPoolExecutor(8) as pool:
        writing = [pool.submit(write) for _ in range(8)]
        until(lambda: grid.map("m").get("n", 0) > 100, "all write")
        grid.stop()
        for each in writing:
            error = each.exception(WITHIN_S)
            assert isinstance(error, (phalanx.ClientClosed, phalanx.IndeterminateWrite, phalanx.UnavailableError))


def test_a_lock_of_the_program_is_free_when_it_stops(pair: list[phalanx.MemberThread]) -> None:
    first, other = pair
    assert first.lock("l").acquire()
    first.stop()
    with other.lock("l", wait=WITHIN_S):
        pass


def test_a_member_that_cannot_listen_is_none(grid: phalanx.MemberThread) -> None:
    port = int(grid.address.rpartition(":")[2])
    with pytest.raises(phalanx.UsageError, match=f"cannot listen on 127.0.0.1:{port}"):
        phalanx.start_member_in_thread(phalanx.Config(port=port))
    until(lambda: sum(thread.name == "phalanx-member" for thread in threading.enumerate()) == 1, "no thread stays")


def test_an_interrupt_while_it_joins_ends_the_attempt(grid: phalanx.MemberThread) -> None:
    """The seed answers nobody, so the member would wait."""
    silent = Address("127.0.0.1:1")
    config = phalanx.Config(port=0, seeds=(silent,), join_attempts=1_000)
    timer = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT])
    with interrupts_are_raised():
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            phalanx.start_member_in_thread(config)
    until(lambda: sum(thread.name == "phalanx-member" for thread in threading.enumerate()) == 1, "its thread ends")


def test_a_member_that_fails_tells_its_program(monkeypatch: Any) -> None:
    told: list[Any] = []
    member = phalanx.start_member_in_thread(phalanx.Config(port=0), lambda *what: told.append(what))
    node = member._member.node
    assert node is not None

    def fail(event: object, now: int) -> list[Any]:
        raise RuntimeError("broken")

    monkeypatch.setattr(node, "handle", fail)
    with pytest.raises(phalanx.MemberFailed, match="broken"):
        member.wait_ended(WITHIN_S)
    assert not member.is_running
    assert len(told) == 1
    with pytest.raises(phalanx.ClientClosed, match="stopped"):
        member.map("m")["k"]
    member.stop()


def run_program(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "program.py"
    path.write_text(text)
    return subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60, check=False)


def test_a_program_that_ends_hands_over_first(grid: phalanx.MemberThread, tmp_path: Path) -> None:
    text = f"""
import phalanx
config = phalanx.Config(port=0, seeds=({grid.address!r},), slow_turn_warning_ms=0)  # no warning of a slow machine
member = phalanx.start_member_in_thread(config)
member.map("m").put_all({{number: number for number in range(500)}})
print(len(member.view.members))
"""
    ended = run_program(tmp_path, text)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "2\n", "")
    assert grid.view is not None
    assert len(grid.view.members) == 1, "it left before it ended, not as in a crash"
    assert len(grid.map("m")) == 500


def test_a_forked_process_is_told_to_start_a_member_of_its_own(tmp_path: Path) -> None:
    text = """
import os, phalanx
member = phalanx.start_member_in_thread(phalanx.Config(port=0))
entries = member.map("m")
entries["k"] = 1
child = os.fork()
for call in (lambda: entries["k"], lambda: entries.put("k", 2), lambda: len(entries), lambda: member.address) if not child else ():
    try:
        call()
    except phalanx.UsageError as error:
        print("refused:", "fork" in str(error), flush=True)
if not child:
    own = phalanx.start_member_in_thread(phalanx.Config(port=0))
    own.map("m")["k"] = 3
    print(own.map("m")["k"], flush=True)
    raise SystemExit(0)
os.waitpid(child, 0)
print(entries["k"], len(member.view.members))
"""
    ended = run_program(tmp_path, text)
    assert (ended.returncode, ended.stdout.splitlines()) == (0, ["refused: True"] * 4 + ["3", "1 1"]), ended.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_a_forked_process_that_has_no_use_for_the_member_ends_in_order(tmp_path: Path, host: str) -> None:
    """Nothing is looked up in threads of libuv, for which the child would wait."""
    text = f"""
import os, phalanx
first = phalanx.start_member_in_thread(phalanx.Config(host={host!r}, port=0))
second = phalanx.start_member_in_thread(phalanx.Config(host={host!r}, port=0, seeds=(first.address,)))
child = os.fork()
if child:
    print(os.waitpid(child, 0)[1])
    second.stop(drain=False)
    first.stop(drain=False)
"""
    ended = run_program(tmp_path, text)
    assert (ended.returncode, ended.stdout) == (0, "0\n"), ended.stderr


def test_a_blocking_client_in_the_thread_of_a_member_is_refused_at_once() -> None:
    """A notebook's cells run in an event loop. With a member in it a blocking call would wait for itself."""

    async def cell() -> None:
        member = await phalanx.start_member(phalanx.Config(port=0))
        try:
            client = await asyncio.to_thread(phalanx.Client, member.address)
            for call in (
                lambda: phalanx.Client(member.address),
                lambda: client.map("m").get(1),
                lambda: client.map_names(),
            ):
                with pytest.raises(phalanx.UsageError, match="start_member_in_thread"):  # and does not wait in vain
                    call()
            await asyncio.to_thread(client.map("m").put, 1, 2)
            assert await member.map("m").get(1) == 2
            await asyncio.to_thread(client.close)
        finally:
            await member.stop()

    asyncio.run(cell())
    with phalanx.start_member_in_thread(phalanx.Config(port=0)) as member, phalanx.Client(member.address) as client:
        client.map("m")["k"] = 1
        assert member.map("m")["k"] == 1


def test_two_members_of_one_loop_are_counted_apart() -> None:
    async def story() -> None:
        first = await phalanx.start_member(phalanx.Config(port=0))
        other = await phalanx.start_member(phalanx.Config(port=0))
        await other.stop()
        with pytest.raises(phalanx.UsageError, match="blocking call"):
            phalanx.Client(first.address)
        await first.stop()
        with pytest.raises(phalanx.UnavailableError):
            phalanx.Client(first.address, call_timeout_s=0.2)

    asyncio.run(story())


def test_a_map_of_a_member_says_what_it_is(grid: phalanx.MemberThread) -> None:
    entries = grid.map("m")
    assert isinstance(entries, LocalMap)
    assert repr(entries) == "LocalMap('m')"
    assert entries == grid.map("m") != grid.map("n")
    with pytest.raises(phalanx.UsageError, match="cannot name a map"):
        grid.map("")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_the_thread_of_a_stopped_member_ends(grid: phalanx.MemberThread) -> None:
    other = phalanx.start_member_in_thread(phalanx.Config(port=0))
    other.stop()
    assert not other._thread.is_alive()
    assert grid._thread.is_alive()
