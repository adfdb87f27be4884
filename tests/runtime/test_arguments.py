"""What programs give by mistake: each error names the argument, what was given, and what fits; nothing is changed."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import phalanx
from phalanx.common.durations import to_seconds

WRONG: list[Any] = ["1h", "5", True, float("nan"), -1, dt.timedelta(seconds=-1), [1], object()]


@pytest.fixture(scope="module")
def grid() -> Iterator[phalanx.MemberThread]:
    with phalanx.start_member_in_thread(phalanx.Config(port=0)) as member:
        yield member


@pytest.mark.parametrize("given", WRONG, ids=lambda given: "object" if type(given) is object else repr(given))
@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("ttl", lambda grid, given: grid.map("m").put("k", 1, ttl=given)),
        ("max_idle", lambda grid, given: grid.map("m").put("k", 1, max_idle=given)),
        ("ttl", lambda grid, given: grid.map("m").put_all({"k": 1}, ttl=given)),
        ("ttl", lambda grid, given: grid.map("m").put_if_absent("k", 1, ttl=given)),
        ("ttl", lambda grid, given: grid.map("m").increment("k", ttl=given)),
        ("ttl", lambda grid, given: grid.map("m").touch("k", ttl=given)),
        ("lease", lambda grid, given: grid.lock("k", lease=given)),
        ("wait", lambda grid, given: grid.semaphore("k", 2, wait=given)),
        ("wait", lambda grid, given: grid.lock("k").acquire(given)),
        ("call_timeout_s", lambda grid, given: phalanx.Client(grid.address, call_timeout_s=given)),
        ("connect_timeout_s", lambda grid, given: phalanx.Client(grid.address, connect_timeout_s=given)),
        ("call_timeout_s", lambda grid, given: phalanx.connect(grid.address, call_timeout_s=given)),
        ("timeout_s", lambda grid, given: grid.stop(timeout_s=given)),
    ],
)  # fmt: skip
def test_what_is_no_length_of_time_is_refused(
    grid: phalanx.MemberThread, argument: str, call: Callable[[Any, Any], Any], given: Any
) -> None:
    with pytest.raises(phalanx.UsageError, match=f"^{argument} is .*: give seconds"):
        call(grid, given)
    assert "k" not in grid.map("m")


@pytest.mark.parametrize("ttl", [5, 5.0, dt.timedelta(seconds=5)])
def test_a_length_of_time_is_seconds_or_a_timedelta(grid: phalanx.MemberThread, ttl: float | dt.timedelta) -> None:
    for entries in (grid.map("lives"), phalanx.Client(grid.address, call_timeout_s=5).map("lives")):
        entries.put("k", 1, ttl=ttl)
        assert 4 < (entries.time_to_live("k") or 0) <= 5
    with grid.lock("l", lease=dt.timedelta(minutes=1), wait=dt.timedelta(0)) as lock:
        assert 59 < lock.status().lease_left[0] <= 60


def test_the_embedded_map_takes_timedeltas() -> None:
    async def story() -> None:
        member = await phalanx.start_member(phalanx.Config(port=0))
        try:
            await member.map("m").put("k", 1, ttl=dt.timedelta(hours=1))
            assert (await member.map("m").time_to_live("k") or 0) > 3_500
            with pytest.raises(phalanx.UsageError, match="ttl is '1h'"):
                await member.map("m").put("k", 1, ttl="1h")  # type: ignore[arg-type]
            with pytest.raises(phalanx.UsageError, match="timeout_s is"):
                await member.stop(timeout_s="a")  # type: ignore[arg-type]
        finally:
            await member.stop()

    asyncio.run(story())


def test_bounds_count_for_timedeltas_too() -> None:
    assert to_seconds("x", dt.timedelta(milliseconds=1), "", at_most=1) == 0.001
    assert to_seconds("x", 0, "", at_most=1, may_be_zero=True) == 0
    for given in (0, dt.timedelta(0), dt.timedelta(seconds=2), 10**400, float("inf")):
        with pytest.raises(phalanx.UsageError):
            to_seconds("x", given, "", at_most=1)


@pytest.mark.parametrize("members", [5, None, [], [5], "", b"127.0.0.1:1"], ids=repr)
def test_what_names_no_member_is_refused(members: Any) -> None:
    for connect in (phalanx.Client, lambda given: asyncio.run(open_client(given))):
        with pytest.raises(phalanx.UsageError, match="does not name a member"):
            connect(members)


async def open_client(members: Any) -> None:
    await phalanx.connect(members)
