"""Functions whose results the grid keeps: made once in the cluster, new for a time, old ones given meanwhile if wanted."""

from __future__ import annotations

import asyncio
import datetime as dt
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import phalanx
from processes import wait_for


@pytest.fixture(scope="module")
def grid() -> Iterator[phalanx.MemberThread]:
    with phalanx.start_member_in_thread(phalanx.Config(port=0)) as member:
        yield member


class Counted:
    """A function that counts its calls, and takes its time."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.calls = 0
        self.seconds = seconds
        self.may_end = threading.Event()
        self.may_end.set()

    def __call__(self, *arguments: Any, **named: Any) -> list[Any]:
        self.calls += 1
        time.sleep(self.seconds)
        assert self.may_end.wait(30)
        return [self.calls, list(arguments), named]


def test_a_result_is_made_once_for_its_arguments(grid: phalanx.MemberThread) -> None:
    counted = Counted()

    @grid.cached(ttl=60)
    def load(number: int, *, deep: bool = False) -> list[Any]:
        """Load it."""
        return counted(number, deep=deep)

    made: Any = load
    assert (made.__name__, made.__doc__) == ("load", "Load it.")
    assert load(1) == load(1) == [1, [1], {"deep": False}]
    assert load(2)[0] == 2
    assert load(1, deep=True) == load(1, deep=True) == [3, [1], {"deep": True}]
    assert load.forget(1)
    assert not load.forget(1)
    assert load(1)[0] == 4
    with phalanx.Client(grid.address) as client:
        assert client.cached(ttl=dt.timedelta(minutes=1))(made.__wrapped__)(2)[0] == 2, "another program finds it"


def test_none_is_a_result_and_an_error_is_none(grid: phalanx.MemberThread) -> None:
    calls: list[int] = []

    @grid.cached(ttl=60)
    def find(number: int) -> None:
        calls.append(number)
        if len(calls) == 1:
            raise LookupError("not yet")

    with pytest.raises(LookupError):
        find(1)
    assert [find(1), find(1)] == [None, None]
    assert calls == [1, 1]


def test_a_result_is_new_for_its_time(grid: phalanx.MemberThread) -> None:
    counted = Counted()
    short = grid.cached(ttl=0.1, key=lambda name: name.lower(), map="short")(lambda name: counted(name))
    assert short("A")[0] == short("a")[0] == 1
    time.sleep(0.2)
    assert short("A")[0] == 2


def test_one_thread_makes_it_while_the_others_wait(grid: phalanx.MemberThread) -> None:
    counted = Counted(0.3)
    slow = grid.cached(ttl=60, map="slow")(lambda: counted())
    with ThreadPoolExecutor(8) as pool:
        found = [each.result() for each in [pool.submit(slow) for _ in range(8)]]
    assert (counted.calls, [each[0] for each in found]) == (1, [1] * 8)


def test_the_old_one_is_given_while_a_new_one_is_made(grid: phalanx.MemberThread) -> None:
    counted = Counted()
    stale = grid.cached(ttl=0.1, stale=60, map="stale")(lambda: counted())
    assert stale()[0] == 1
    counted.may_end.clear()
    time.sleep(0.2)
    assert [stale()[0] for _ in range(5)] == [1] * 5, "nobody waits for one that does not end"
    counted.may_end.set()
    wait_for(lambda: stale()[0] == 2, "the new one")
    assert counted.calls <= 3


def test_a_new_one_that_fails_leaves_the_old_one(grid: phalanx.MemberThread, caplog: Any) -> None:
    outcomes: Iterator[Any] = iter([1, ValueError("broken"), 3])

    def make() -> int:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return int(outcome)

    stale = grid.cached(ttl=0.05, stale=60, map="failing")(make)
    assert stale() == 1
    time.sleep(0.1)
    assert stale() == 1
    wait_for(lambda: "no new result: ValueError: broken" in caplog.text, "it is told")
    wait_for(lambda: stale() == 3, "the next one is made")


def test_processes_share_results(grid: phalanx.MemberThread, tmp_path: Path) -> None:
    program = tmp_path / "worker.py"
    program.write_text(f"""
import os, time, phalanx
grid = phalanx.Client({grid.address!r})
@grid.cached(ttl=60, map="of processes")
def make(number):
    print("made", flush=True)
    time.sleep(0.5)
    return os.getpid()
print(make(1))
""")
    workers = [subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    told = [worker.communicate(timeout=60)[0].split() for worker in workers]
    assert sum(each.count("made") for each in told) == 1
    assert len({each[-1] for each in told}) == 1


def test_tasks_share_results_too(grid: phalanx.MemberThread) -> None:
    async def story() -> None:
        calls = 0

        async def make(number: int) -> int:
            nonlocal calls
            calls += 1
            await asyncio.sleep(0.2)
            return calls

        async with phalanx.connect(grid.address) as client:
            made = client.cached(ttl=60, map="of tasks")(make)
            assert await asyncio.gather(*(made(1) for _ in range(10))) == [1] * 10
            assert await made.forget(1)
            assert await made(1) == 2
            old = client.cached(ttl=0.1, stale=60, map="old ones")(make)
            first = await old(1)
            await asyncio.sleep(0.2)
            assert [await old(1) for _ in range(5)] == [first] * 5
            while await old(1) == first:  # noqa: ASYNC110 - another task makes it
                await asyncio.sleep(0.02)
            assert await old(1) == first + 1
        async with await phalanx.start_member(phalanx.Config(port=0)) as member:
            assert await member.cached(ttl=60)(make)(1) == await member.cached(ttl=60)(make)(1)

    asyncio.run(asyncio.wait_for(story(), 60))


def test_what_is_wrong_is_refused(grid: phalanx.MemberThread) -> None:
    for wrong, told in (
        ({"ttl": 0}, "ttl is 0"),
        ({"ttl": 1, "stale": "1h"}, "stale is '1h'"),
        ({"ttl": 1, "key": 5}, "key is 5"),
    ):
        with pytest.raises(phalanx.UsageError, match=told):
            grid.cached(**wrong)(lambda: None)
    with pytest.raises(phalanx.UsageError, match=r"its arguments make no key .*; give key=, a function of them"):
        grid.cached(ttl=1)(lambda thing: thing)(object())
    assert threading.active_count() < 100
