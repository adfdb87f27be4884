"""Locks and semaphores as programs see them: both clients and a member's own program, what they return and what they refuse."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import phalanx
from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_key_data
from phalanx.common.ids import Address
from phalanx.maps.locks import LOCKS, renew_plan
from support.interrupts import interrupts_are_raised
from support.leases import LEASE_S, Renewals
from support.processes import Cluster, wait_for


@asynccontextmanager
async def two_members() -> AsyncIterator[tuple[phalanx.Member, phalanx.Member]]:
    one = await phalanx.start_member(phalanx.Config(port=0))
    two = await phalanx.start_member(phalanx.Config(port=0, seeds=(Address(one.address),)))
    yield one, two
    await two.stop(drain=False)
    await one.stop(drain=False)


async def hold_in_every_way(grid: Any) -> None:
    m = grid.map("m")
    lock = grid.lock("a")
    assert not lock.is_held
    assert await lock.acquire()
    first = lock.token
    assert lock.is_held
    assert not await grid.lock("a").acquire(wait=0)
    assert not await grid.lock("a", wait=0.05).acquire()
    assert await m.lock("a").acquire(), "a key's lock is another one"
    status = await grid.lock("a").status()
    assert (status.token, status.permits, status.tokens, status.waiting) == (first, 1, (first,), 0)
    assert 29 < status.lease_left[0] <= 30
    await lock.release()
    assert (await grid.lock("a").status()).holders == ()
    async with grid.lock("a", reentrant=True) as outer:
        assert outer.token > first
        async with grid.lock("a", reentrant=True) as inner:
            assert inner.token == outer.token
        assert outer.is_held
    async with m.lock("k") as held:
        await m.put("k", 1, fence=held.token)
        await m.put("k", 2, ttl=100, fence=held.token)
        old = held.token
    with pytest.raises(phalanx.StaleToken, match="it was released, or its lease has ended; nothing was changed"):
        await m.put("k", 3, fence=old)
    async with m.lock("k") as held:
        with pytest.raises(phalanx.StaleToken, match="a later holder"):
            await m.remove("k", fence=old)
        assert [await m.get("k"), await m.remove("k", fence=held.token), await m.get("k")] == [2, 2, None]
        assert await m.remove("k", fence=held.token) is None
    semaphore = [grid.semaphore("s", 2, wait=0) for _ in range(3)]
    assert [await each.acquire() for each in semaphore] == [True, True, False]
    assert semaphore[0].is_held
    await semaphore[0].release()
    assert await semaphore[2].acquire()


async def try_what_is_refused(grid: Any) -> None:
    m = grid.map("m")
    refused: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: grid.lock("a", lease=0), phalanx.UsageError, "^lease is 0: give seconds"),
        (lambda: grid.lock("a", lease="1m"), phalanx.UsageError, "^lease is '1m'"),
        (lambda: m.lock("a", lease=100_000), phalanx.UsageError, "^lease is 100000: .* at most 86400"),
        (lambda: grid.lock("a", wait=-2), phalanx.UsageError, "^wait is -2: give seconds, 0 .* or None"),
        (lambda: grid.lock(None), phalanx.UsageError, "key"),
        (lambda: grid.semaphore("a", 0), phalanx.UsageError, "^permits is 0: give a number, 1 to 1000"),
        (lambda: m.semaphore("a", 2.5), phalanx.UsageError, "^permits is 2.5"),
    ]
    for make, kind, reason in refused:
        with pytest.raises(kind, match=reason):
            make()
    wrong: list[tuple[Callable[[], Awaitable[Any]], type[Exception], str]] = [
        (lambda: m.put("a", 1, fence="7"), phalanx.UsageError, "^fence is '7': give the token of a lock"),
        (lambda: m.put("a", 1, fence=0), phalanx.UsageError, "^fence is 0"),
        (lambda: m.put("a", 1, fence=2**62), phalanx.UsageError, "no fencing token of this cluster"),
        (lambda: grid.lock("a").release(), phalanx.UsageError, "does not hold lock 'a': acquire it first"),
        (lambda: grid.lock("a").acquire(wait="x"), phalanx.UsageError, "^wait is 'x'"),
        (lambda: grid.lock("a").acquire(wait=-1), phalanx.UsageError, "^wait is -1: "),
        (lambda: grid.lock("a").acquire(wait=float("inf")), phalanx.UsageError, "^wait is inf: "),
    ]
    for call, kind, reason in wrong:
        with pytest.raises(kind, match=reason):
            await call()
    with pytest.raises(phalanx.UsageError, match="does not hold lock 'a' of map 'm'"):
        _ = m.lock("a").token
    assert await m.get("a") is None
    async with grid.lock("a"):
        with pytest.raises(
            phalanx.LockTimeout, match=r"held by others for 0\.05 s; this task holds it itself: give reent"
        ):
            async with grid.lock("a", wait=0.05):
                pass
        with pytest.raises(ZeroDivisionError):
            async with grid.lock("b"):
                raise ZeroDivisionError
    assert await grid.lock("b", wait=0).acquire()
    async with grid.semaphore("s", 2):
        with pytest.raises(phalanx.UsageError, match="has 2 permits while somebody holds one, and 3 were asked for"):
            await grid.semaphore("s", 3).acquire()


@pytest.mark.parametrize("who", ["asyncio", "program"])
@pytest.mark.parametrize("check", [hold_in_every_way, try_what_is_refused])
def test_the_asyncio_client_and_a_members_program(check: Callable[[Any], Awaitable[None]], who: str) -> None:
    async def run() -> None:
        async with two_members() as (one, two):
            if who == "program":
                await check(two)
            else:
                async with phalanx.connect(one.address) as grid:
                    await check(grid)

    asyncio.run(run())


def test_tasks_of_all_programs_hold_one_lock_one_after_another() -> None:
    async def run() -> None:
        held: list[int] = []
        async with two_members() as (one, two), phalanx.connect(one.address) as client:

            async def work(grid: Any) -> None:
                for _ in range(10):
                    async with grid.lock("a", wait=None) as lock:
                        held.append(lock.token)
                        await asyncio.sleep(0.001)
                        assert held[-1] == lock.token

            await asyncio.gather(*(work(grid) for grid in (one, two, client) for _ in range(3)))
        assert held == sorted(set(held))
        assert len(held) == 90

    asyncio.run(run())


def test_a_lease_is_renewed_while_its_program_lives_and_a_client_that_closes_frees_what_it_holds() -> None:
    async def run() -> None:
        async with two_members() as (one, two):
            async with phalanx.connect(one.address) as client:
                short, renewals = client.lock("a", lease=LEASE_S), Renewals()
                assert await short.acquire()
                while not renewals.are_seen(await two.lock("a").status()):  # noqa: ASYNC110  # nobody tells of it
                    await asyncio.sleep(0.02)
                assert short.is_held
                assert not await two.lock("a", wait=0).acquire()
                assert await client.semaphore("s", 1).acquire()
            assert await two.lock("a", wait=0).acquire()
            assert await two.semaphore("s", 1, wait=0).acquire()
            await two.stop()
            assert await one.lock("a", wait=0).acquire()

    asyncio.run(run())


def test_a_renewal_by_a_task_that_fails_for_any_reason_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [ZeroDivisionError("a defect")]

    def renew_at_last(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return renew_plan(*arguments)

    monkeypatch.setattr("phalanx.maps.async_leases.renew_plan", renew_at_last)

    async def run() -> None:
        async with two_members() as (one, _), one.lock("failing", lease=LEASE_S) as lock, asyncio.timeout(30):
            renewals = Renewals()
            while not renewals.are_seen(await lock.status()):  # noqa: ASYNC110  # nobody tells of it
                await asyncio.sleep(0.02)
            assert lock.is_held

    asyncio.run(run())
    assert "a defect" in caplog.text


def test_who_did_nothing_for_longer_than_its_lease_has_lost_the_lock_and_learns_it() -> None:
    async def run() -> None:
        async with two_members() as (one, two), phalanx.connect(one.address) as client:

            async def hang(*, fails: bool) -> None:
                async with client.lock("a", lease=0.3) as lock:
                    client.locks._renewing.cancel()  # type: ignore[union-attr]  # as if its loop was blocked
                    await asyncio.sleep(0.5)
                    assert not lock.is_held
                    if fails:
                        raise ZeroDivisionError

            with pytest.raises(phalanx.LockLost, match=r"was not renewed within its lease of 0\.3 s"):
                await hang(fails=False)
            with pytest.raises(ZeroDivisionError):
                await hang(fails=True)
            assert await two.lock("a", wait=0).acquire()

    asyncio.run(run())


def test_a_task_that_is_cancelled_while_it_waits_is_granted_nothing() -> None:
    async def run() -> None:
        async with two_members() as (one, two):
            held = one.lock("a")
            assert await held.acquire()
            waiting = asyncio.create_task(two.lock("a", wait=None).acquire())
            while not (await held.status()).waiting:  # noqa: ASYNC110  # nobody tells when it has come to the owner
                await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await held.release()
            assert await one.lock("a", wait=1).acquire()

    asyncio.run(run())


def test_a_task_that_ends_without_releasing_frees_its_lock_with_its_lease() -> None:
    async def run() -> None:
        async with two_members() as (one, two):
            assert await asyncio.create_task(one.lock("a", lease=1.5).acquire())
            assert not await two.lock("a", wait=0).acquire()
            assert await two.lock("a", wait=20).acquire()

    asyncio.run(run())


def test_a_client_that_closes_gives_up_what_its_calls_wait_for() -> None:
    async def run() -> None:
        async with two_members() as (one, two):
            held = one.lock("a")
            assert await held.acquire()
            async with phalanx.connect(one.address) as client:
                waiting = asyncio.create_task(client.lock("a", wait=None).acquire())
                while not (await held.status()).waiting:  # noqa: ASYNC110  # nobody tells when it has come to the owner
                    await asyncio.sleep(0.01)
            with pytest.raises(phalanx.ClientClosed, match="closed"):
                await waiting
            assert not (await held.status()).waiting
            await held.release()
            assert await two.lock("a", wait=0).acquire()

    asyncio.run(run())


def test_a_thread_that_ends_without_releasing_frees_its_lock_with_its_lease(cluster: Cluster) -> None:
    cluster.start()
    with cluster.client() as client, cluster.client() as another, cluster.client() as closed:
        thread = threading.Thread(target=client.lock("a", lease=0.5).acquire)
        thread.start()
        thread.join(10)
        assert another.lock("a", wait=20).acquire()
        failures: list[BaseException] = []

        def wait_for_it() -> None:
            try:
                closed.lock("a", wait=None).acquire()
            except phalanx.ClientClosed as error:
                failures.append(error)

        waiting = threading.Thread(target=wait_for_it)
        waiting.start()
        wait_for(lambda: another.lock("a").status().waiting, "the other client waits")
        closed.close()
        waiting.join(10)
        assert "closed" in str(failures[0])
        assert not another.lock("a").status().waiting
        another.lock("a").release()
        assert client.lock("a", wait=0).acquire()


def test_threads_hold_one_lock_one_after_another_while_its_owner_dies(cluster: Cluster) -> None:
    members = cluster.start(3)
    held: list[int] = []
    failures: list[BaseException] = []
    with cluster.client() as client, cluster.client() as another:
        m = client.map("m")
        m.put("k", 0)
        cluster.wait_redundant()

        def work(grid: phalanx.Client) -> None:
            try:
                while len(held) < 150:
                    with grid.map("m").lock("k", wait=60) as lock:
                        count = grid.map("m")["k"]
                        held.append(lock.token)
                        time.sleep(0.001)
                        assert held[-1] == lock.token
                        grid.map("m").put("k", count + 1, fence=lock.token)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(grid,)) for grid in (client, another) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_for(lambda: len(held) > 30 or failures, "some progress")
        table = cluster.table_of(members[0]).table
        owner = table.owner(partition_of(to_key_data("k"), table.partition_count))
        cluster.kill(next(member for member in members if str(owner).startswith(member.address)))
        for thread in threads:
            thread.join(90)
        assert failures == []
        assert held == sorted(set(held))
        assert m["k"] == len(held)


def test_a_thread_holds_what_it_has_acquired_and_renews_it(cluster: Cluster) -> None:
    cluster.start()
    with cluster.client() as client, cluster.client() as another:
        with client.lock("a", lease=LEASE_S) as lock:
            renewals = Renewals()
            wait_for(lambda: renewals.are_seen(another.lock("a").status()), "it is renewed")
            assert lock.is_held
            assert not another.lock("a", wait=0).acquire()
            refused: list[BaseException] = []

            def release() -> None:
                try:
                    client.lock("a").release()
                except phalanx.UsageError as error:
                    refused.append(error)

            other = threading.Thread(target=release)
            other.start()
            other.join(10)
            assert "this thread does not hold lock 'a'" in str(refused[0])
            with client.lock("a", reentrant=True) as again:
                assert again.token == lock.token
            with (
                pytest.raises(phalanx.LockTimeout, match="this thread holds it itself: give reentrant=True"),
                client.lock("a", wait=0),
            ):
                pass
        assert another.lock("a", wait=0).acquire()
        assert client.semaphore("s", 2).acquire()
        assert client.semaphore("s", 2).status().permits == 2
        with pytest.raises(phalanx.StaleToken):
            client.map("m").put("k", 1, fence=lock_token_of(client))
        with pytest.raises(phalanx.UsageError, match="fence is True"):
            client.map("m").remove("k", fence=True)


def test_a_thread_that_is_interrupted_while_it_waits_is_granted_nothing(cluster: Cluster) -> None:
    cluster.start()
    with cluster.client() as client, cluster.client() as another:
        with another.lock("a"):
            before = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT])
            with interrupts_are_raised():
                before.start()
                with pytest.raises(KeyboardInterrupt):
                    client.lock("a", wait=60).acquire()
            assert not client.lock("a").is_held
            wait_for(lambda: not another.lock("a").status().waiting, "its place is free")
        assert another.lock("a").status().holders == ()
        assert client.lock("a", wait=0).acquire()


def lock_token_of(client: phalanx.Client) -> int:
    """A token that is good for nothing any more."""
    with client.map("m").lock("k") as lock:
        return lock.token


def test_a_forked_process_holds_nothing_of_its_parent(cluster: Cluster) -> None:
    cluster.start()
    with cluster.client() as client, client.lock("a"):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                if not client.lock("a").is_held and not client.lock("a", wait=0).acquire():
                    status = 0
                client.close()
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert client.lock("a").is_held
        assert client.lock("a").status().holders


def test_locks_with_a_name_of_their_own_follow_the_settings_of_their_map_and_are_no_entries() -> None:
    async def run() -> None:
        one = await phalanx.start_member(phalanx.Config(port=0, maps={LOCKS: phalanx.MapConfig(minimum_members=2)}))
        two = await phalanx.start_member(phalanx.Config(port=0, seeds=(Address(one.address),)))
        async with phalanx.connect(one.address) as client:
            assert await client.lock("a").acquire()
            assert await client.map_names() == []
            assert await client.map(LOCKS).size() == 0
            await two.stop()
            with pytest.raises(phalanx.NotEnoughMembers, match=r"map 'phalanx\.locks' refuses writes"):
                await client.lock("b").acquire()
        await one.stop(drain=False)

    asyncio.run(run())
