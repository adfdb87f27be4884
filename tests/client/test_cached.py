"""Functions whose results the grid keeps: made once in the cluster, new for a time, old ones given meanwhile if wanted."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import functools
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
from support.processes import wait_for


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

    @grid.cached(ttl=60, name="load")
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
        assert client.cached(ttl=dt.timedelta(minutes=1), name="load")(made.__wrapped__)(2)[0] == 2, (
            "another program finds it"
        )


def test_none_is_a_result_and_an_error_is_none(grid: phalanx.MemberThread) -> None:
    calls: list[int] = []

    @grid.cached(ttl=60, name="find")
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
    short = grid.cached(ttl=0.1, map="short", name="counted")(lambda: counted())
    assert short()[0] == 1
    time.sleep(0.2)
    assert short()[0] == 2


def test_arguments_with_one_key_have_one_result(grid: phalanx.MemberThread) -> None:
    counted = Counted()
    named = grid.cached(ttl=60, key=lambda name: name.lower(), map="named", name="counted")(lambda name: counted(name))
    assert named("A")[0] == named("a")[0] == 1


def test_one_thread_makes_it_while_the_others_wait(grid: phalanx.MemberThread) -> None:
    counted = Counted(0.3)
    slow = grid.cached(ttl=60, map="slow", name="slow")(lambda: counted())
    with ThreadPoolExecutor(8) as pool:
        found = [each.result() for each in [pool.submit(slow) for _ in range(8)]]
    assert (counted.calls, [each[0] for each in found]) == (1, [1] * 8)


def test_the_old_one_is_given_while_a_new_one_is_made(grid: phalanx.MemberThread) -> None:
    counted = Counted()
    stale = grid.cached(ttl=0.1, stale=60, map="stale", name="stale")(lambda: counted())
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

    stale = grid.cached(ttl=0.05, stale=60, map="failing", name="failing")(make)
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
@grid.cached(ttl=60, map="of processes", name="make")
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
            made = client.cached(ttl=60, map="of tasks", name="make")(make)
            assert await asyncio.gather(*(made(1) for _ in range(10))) == [1] * 10
            assert await made.forget(1)
            assert await made(1) == 2
            old = client.cached(ttl=0.1, stale=60, map="old ones", name="make")(make)
            first = await old(1)
            await asyncio.sleep(0.2)
            assert [await old(1) for _ in range(5)] == [first] * 5
            while await old(1) == first:  # noqa: ASYNC110 - another task makes it
                await asyncio.sleep(0.02)
            assert await old(1) == first + 1
        async with await phalanx.start_member(phalanx.Config(port=0)) as member:
            assert await member.cached(ttl=60, name="m")(make)(1) == await member.cached(ttl=60, name="m")(make)(1)

    asyncio.run(asyncio.wait_for(story(), 60))


def test_what_is_wrong_is_refused(grid: phalanx.MemberThread) -> None:
    for wrong, told in (
        ({"ttl": 0}, "ttl is 0"),
        ({"ttl": 1, "stale": "1h"}, "stale is '1h'"),
        ({"ttl": 1, "key": 5}, "key is 5"),
        ({"ttl": 1, "name": ""}, "name is ''"),
    ):
        with pytest.raises(phalanx.UsageError, match=told):
            grid.cached(**wrong)(lambda: None)
    with pytest.raises(phalanx.UsageError, match=r"its arguments make no key .*; give key=, a function of them"):
        grid.cached(ttl=1, name="thing")(lambda thing: thing)(object())
    assert threading.active_count() < 100


def of_this_module(number: int) -> int:
    return number


def made_by(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*arguments: Any) -> Any:
        return function(*arguments)

    return wrapper


def test_no_function_gets_the_results_of_another_one(grid: phalanx.MemberThread) -> None:
    """A name that several functions can have is refused where it is decorated, and not answered with what others made."""
    for function, why in (
        (lambda number: number, r"is '.*<lambda>', as other functions can be"),
        (made_by(of_this_module), r"is 'made_by\.<locals>\.wrapper', as other functions can be"),
        (functools.partial(of_this_module, 1), "has no name of its own"),
        (Counted(), "has no name of its own"),
    ):
        with pytest.raises(phalanx.UsageError, match=f"{why}.* give name="):
            grid.cached(ttl=60)(function)
    with pytest.raises(phalanx.UsageError, match="cannot be called: put @classmethod"):
        grid.cached(ttl=60)(classmethod(of_this_module))  # type: ignore[arg-type]
    assert grid.cached(ttl=60)(of_this_module)(7) == 7
    ten, hundred = (grid.cached(ttl=60, name=f"times {by}")(lambda number, by=by: number * by) for by in (10, 100))
    assert [ten(1), hundred(1), ten(1)] == [10, 100, 10]


def test_two_scripts_do_not_share_what_has_one_name(grid: phalanx.MemberThread, tmp_path: Path) -> None:
    told = []
    for result in ("one", "two"):
        program = tmp_path / f"{result}.py"
        program.write_text(f"""
import phalanx
with phalanx.Client({grid.address!r}) as grid:
    try:
        @grid.cached(ttl=60, map="scripts")
        def find(number):
            return {result!r}
    except phalanx.UsageError as error:
        print(error)
    print(grid.cached(ttl=60, map="scripts", name={result!r})(lambda number: {result!r})(1))
""")
        told.append(subprocess.run([sys.executable, program], capture_output=True, text=True, check=True).stdout)
    assert [each.splitlines()[1] for each in told] == ["one", "two"]
    assert all("is 'find' of a script, as functions of other scripts are" in each for each in told)


def test_a_method_is_bound_to_its_object(grid: phalanx.MemberThread) -> None:
    class Shop:
        def __init__(self, city: str) -> None:
            self.city, self.calls = city, 0

        @grid.cached(ttl=60, name="Shop.price", key=lambda shop, item: (shop.city, item))
        def price(self, item: str) -> str:
            self.calls += 1
            return f"{item} in {self.city}"

        @grid.cached(ttl=60, name="Shop.name")
        def name(self) -> str:
            return self.city

        @staticmethod
        @grid.cached(ttl=60, name="Shop.double")
        def double(number: int) -> int:
            return 2 * number

    rome, other_rome, oslo = Shop("Rome"), Shop("Rome"), Shop("Oslo")
    assert [shop.price("tea") for shop in (rome, other_rome, oslo)] == ["tea in Rome", "tea in Rome", "tea in Oslo"]
    assert [shop.calls for shop in (rome, other_rome, oslo)] == [1, 0, 1]
    assert rome.price.forget("tea")
    assert not other_rome.price.forget("tea")
    assert Shop.price(oslo, "tea") == "tea in Oslo"
    assert rome.double(4) == 8
    with pytest.raises(
        phalanx.UsageError, match=r"cached Shop\.name: it is a method, .* give key=, a function of the object"
    ):
        rome.name()

    async def story() -> None:
        async with phalanx.connect(grid.address) as client:

            class Reader:
                number = 7

                @client.cached(ttl=60, name="Reader.read", key=lambda reader, part: (reader.number, part))
                async def read(self, part: str) -> str:
                    return f"{part} of {self.number}"

            assert [await Reader().read("a"), await Reader().read("a")] == ["a of 7"] * 2
            assert await Reader().read.forget("a")

    asyncio.run(asyncio.wait_for(story(), 60))


def test_every_call_gets_the_result_as_it_is_stored(grid: phalanx.MemberThread) -> None:
    @dataclasses.dataclass
    class Row:
        parts: tuple[int, ...]

    pair = grid.cached(ttl=60, name="pair")(lambda: (1, (2, Row((3,)))))
    assert [repr(pair()), repr(pair())] == ["[1, [2, {'parts': [3]}]]"] * 2

    async def story() -> None:
        async with phalanx.connect(grid.address) as client:

            async def make() -> Any:
                return (1, 2)

            found = client.cached(ttl=60, name="async pair")(make)
            assert [repr(await found()), repr(await found())] == ["[1, 2]"] * 2

    asyncio.run(asyncio.wait_for(story(), 60))


def test_no_clock_of_a_caller_says_whether_a_result_is_new(
    grid: phalanx.MemberThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program whose clock is an hour behind had its results taken for new for an hour by all others."""
    counted = Counted()
    with monkeypatch.context() as behind:
        behind.setattr(time, "time", lambda: 1_000_000_000.0)
        assert grid.cached(ttl=3_600, stale=60, map="clocks", name="old")(counted)()[0] == 1
    assert grid.cached(ttl=3_600, stale=60, map="clocks", name="old")(counted)()[0] == 1
    grid.map("clocks").touch(("old~", 0), 30)
    assert grid.cached(ttl=3_600, stale=60, map="clocks", name="old")(counted)()[0] == 1, "the old one, at once"
    wait_for(lambda: grid.map("clocks")[("old~", 0)][0] == 2, "the new one is made")


def test_an_old_result_is_given_where_the_system_has_no_more_threads(
    grid: phalanx.MemberThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    counted = Counted()
    stale = grid.cached(ttl=1_000, stale=60, map="threads", name="threads")(counted)
    assert stale()[0] == 1
    grid.map("threads").touch(("threads~", 0), 30)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        assert stale()[0] == 1
    assert (
        "cached threads: no new result: UnavailableError: thread 'phalanx-cached' cannot be started: can't start new thread"
        in caplog.text
    )
    assert stale()[0] == 1
    wait_for(lambda: stale()[0] == 2, "a later caller has it made")
