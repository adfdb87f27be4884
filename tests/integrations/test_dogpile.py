"""The backend of dogpile.cache passes dogpile's own tests, and makes a value once in the whole cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from dogpile.cache import make_region
from dogpile.testing.fixtures import _GenericBackendTestSuite, _GenericMutexTestSuite, _GenericSerializerTestSuite

import phalanx

ARGUMENTS: dict[str, Any] = {}


@pytest.fixture(scope="module", autouse=True)
def grid() -> Iterator[phalanx.MemberThread]:
    with phalanx.start_member_in_thread(phalanx.Config(port=0)) as member:
        ARGUMENTS["members"] = member.address
        yield member


class OfDogpile:
    backend = "phalanx"
    config_args: ClassVar[dict[str, Any]] = {"arguments": ARGUMENTS}


class TestBackend(OfDogpile, _GenericBackendTestSuite):
    """As dogpile tests a backend."""


class TestMutex(OfDogpile, _GenericMutexTestSuite):
    """As dogpile tests the mutex of a backend."""


class TestSerializer(OfDogpile, _GenericSerializerTestSuite, _GenericBackendTestSuite):
    """As dogpile tests what a region serialises."""


def region(**arguments: Any) -> Any:
    return make_region().configure("phalanx", expiration_time=60, arguments={**ARGUMENTS, **arguments})


def test_values_of_a_region_are_what_other_processes_read(grid: phalanx.MemberThread) -> None:
    region(map="shared").set("k", {"a": [1]})
    other = make_region().configure("phalanx", expiration_time=60, arguments={"grid": grid, "map": "shared"})
    assert other.get("k") == {"a": [1]}
    other.delete("k")
    assert not region(map="shared").get("k")


def test_a_value_is_removed_after_its_time_to_live() -> None:
    short = region(map="short", time_to_live=0.05)
    short.set_multi({"a": 1, "b": 2})
    time.sleep(0.2)
    assert not any(short.get_multi(["a", "b"]))


def test_one_process_makes_a_value_and_the_others_wait_for_it(tmp_path: Path) -> None:
    program = tmp_path / "worker.py"
    program.write_text(f"""
import os, time
from dogpile.cache import make_region
region = make_region().configure("phalanx", expiration_time=60, arguments={{"members": {ARGUMENTS["members"]!r}, "map": "made"}})
def make():
    time.sleep(0.5)
    print("made", flush=True)
    return os.getpid()
print(region.get_or_create("k", make))
""")
    workers = [subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    told = [worker.communicate(timeout=60)[0].split() for worker in workers]
    assert sum(each.count("made") for each in told) == 1
    assert len({each[-1] for each in told}) == 1


def test_another_thread_may_release_the_lock_of_a_value() -> None:
    def run(cache: Any, key: str, make: Any, mutex: Any) -> None:
        def work() -> None:
            try:
                cache.set(key, make())
            finally:
                mutex.release()

        threading.Thread(target=work).start()

    lazy = make_region(async_creation_runner=run).configure(
        "phalanx", expiration_time=0.05, arguments={**ARGUMENTS, "map": "lazy"}
    )
    assert lazy.get_or_create("k", lambda: 1) == 1
    time.sleep(0.1)
    assert lazy.get_or_create("k", lambda: 2) == 1, "the old one, while another thread makes the new one"
    for _ in range(200):
        if lazy.get("k", ignore_expiration=True) == 2:
            break
        time.sleep(0.02)
    assert lazy.get("k", ignore_expiration=True) == 2
    for _ in range(200):  # the thread stores first, and then releases
        if not lazy.backend.get_mutex("k").locked():
            break
        time.sleep(0.02)
    assert not lazy.backend.get_mutex("k").locked()


def test_a_forked_process_uses_the_region_too() -> None:
    cache = region(map="forked")
    cache.set("k", 1)
    child = os.fork()
    if not child:
        is_right = cache.get("k") == 1
        cache.set("k", 2)
        os._exit(0 if is_right else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert cache.get("k") == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "give members, or the grid"),
        ({"members": "127.0.0.1:1", "grid": 1}, "and not both"),
        ({"members": "127.0.0.1:1", "lock_timout": 5}, r"there is no 'lock_timout' \(did you mean 'lock_timeout'"),
        ({"members": "127.0.0.1:1", "lock_timeout": 0}, "lease is 0: give seconds"),
        ({"members": "127.0.0.1:1", "time_to_live": "1h"}, "ttl is '1h'"),
    ],
)
def test_arguments_that_are_wrong_are_refused_at_once(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(phalanx.UsageError, match=told):
        make_region().configure("phalanx", arguments=arguments)
