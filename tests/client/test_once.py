"""What callers say of their operations: numbers in order, which of them are over, and that a write is applied once."""

import asyncio
import threading
from typing import Any

import pytest

import phalanx
from phalanx.client.aio import AsyncClient
from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_data, to_key_data
from phalanx.common.ids import Address
from phalanx.grid.replica.deduplication import CallerRecord
from phalanx.machine.effects import Answer
from phalanx.maps.requests import OPEN_FROM_EVERY
from phalanx.net.seed_lookups import SeedPlaces
from phalanx.runtime.local.embedded import EmbeddedCaller
from phalanx.runtime.member import Member
from phalanx.wire.messages import DoneReply, Put
from support.processes import Cluster, wait_for

KEY = "counter"


def records_at(member: Member, key: str = KEY) -> list[CallerRecord]:
    owned = member.node.grid.ownership.owned[partition_of(to_key_data(key), member.config.partition_count)]
    return list(owned.replica.deduplication.callers.values()) if owned is not None else []


async def write_in_every_way(writes: Any) -> None:
    await writes.put(KEY, 1)
    assert await writes.put_if_absent(KEY, 2) == 1
    assert await writes.replace(KEY, 3)
    assert await writes.compare_and_set(KEY, 3, 4)
    assert await writes.increment(KEY) == 5
    assert await writes.get_and_put(KEY, 4) == 5
    assert await writes.remove(KEY) == 4
    assert await writes.put_if_absent(KEY, 5) is None


def test_a_caller_with_one_call_at_a_time_leaves_one_outcome() -> None:
    async def run() -> None:
        member = await phalanx.start_member(phalanx.Config(port=0))
        async with phalanx.connect(member.address) as grid:
            await write_in_every_way(grid.map("m"))
        (record,) = records_at(member)
        assert record.older is None
        assert record.floor == record.number
        await member.stop()

    asyncio.run(run())


def test_the_program_of_a_member_says_as_well_what_is_over() -> None:
    """Both have the partition, so whichever owns it keeps a record of both programs."""

    async def run() -> None:
        one = await phalanx.start_member(phalanx.Config(port=0))
        two = await phalanx.start_member(phalanx.Config(port=0, seeds=(Address(one.address),)))
        for member in (one, two):
            await write_in_every_way(member.map("m"))
            await member.map("m").remove(KEY)
        records = records_at(one) or records_at(two)
        assert len(records) == 2
        for record in records:
            assert record.older is None
            assert record.floor == record.number
        await asyncio.gather(one.stop(drain=False), two.stop(drain=False))

    asyncio.run(run())


def test_a_client_without_an_event_loop_says_as_well_what_is_over(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.start()
    with cluster.client() as client:
        sent: list[Any] = []
        call = client.call

        def noted(partition: int, request: Any) -> Any:
            sent.append(request)
            return call(partition, request)

        monkeypatch.setattr(client, "call", noted)
        writes = client.map("m")
        for value in range(3):  # the first ones find the owner
            writes.put(KEY, value)
        writes.put_if_absent(KEY, 2)
        writes.replace(KEY, 3)
        writes.compare_and_set(KEY, 3, 4)
        writes.remove(KEY)
        assert [request.open_from for request in sent[3:]] == [request.id for request in sent[3:]]
        assert len(sent) == 7


@pytest.mark.parametrize("who", ["client", "program"])
def test_a_caller_with_many_calls_says_now_and_then_what_is_over(who: str) -> None:
    async def run() -> None:
        client = AsyncClient(SeedPlaces("127.0.0.1:9"), "phalanx", 30, 1 << 20)
        program = EmbeddedCaller(phalanx.Config(), lambda event: None, lambda: 0, lambda error: None, lambda: None)
        program.local.node = "some"  # type: ignore[assignment]  # it hears of nothing here
        caller: Any = client if who == "client" else program
        under_way: list[int] = []
        for _ in range(100):
            number = caller.next_id()
            under_way.append(number)
            caller.call(0, Put(number, "m", KEY.encode(), b"value", 0))
            assert under_way[0] - 2 * OPEN_FROM_EVERY < caller.open_from <= under_way[0]
            if len(under_way) > 5:
                # The second comes before the first.
                for number in (under_way.pop(1), under_way.pop(0)):
                    if who == "client":
                        client._carry_out([Answer(DoneReply(number))])
                    else:
                        program.answered(DoneReply(number))
        assert caller.open_from > 80
        await client.close()

    asyncio.run(run())


def test_a_thread_that_took_its_number_early_is_not_taken_for_late(cluster: Cluster) -> None:
    cluster.start()
    with cluster.client() as client:
        data = to_key_data(KEY)
        early = Put(client.next_id(), "m", data, to_data(1), 0)
        for value in (2, 3):
            client.map("m").put(KEY, value)
        reply = client.call(partition_of(data, client.partition_count), early)
        assert isinstance(reply, DoneReply)
        several = [(0, Put(client.next_id(), "m", data, to_data(value), 0)) for value in (4, 5)]
        for value in (6, 7):
            client.map("m").put(KEY, value)
        assert [type(each) for each in client.call_all(several)] == [DoneReply, DoneReply]
        assert client.map("m")[KEY] == 5


def test_threads_that_share_a_client_raise_a_counter_once_each_while_its_owner_dies(cluster: Cluster) -> None:
    members = cluster.start(3)
    raised = [0] * 4
    failures: list[BaseException] = []
    with cluster.client() as client:
        counter = client.map("m")
        counter[KEY] = 0
        cluster.wait_redundant()

        def count(thread: int) -> None:
            try:
                while sum(raised) < 400:
                    value = counter[KEY]
                    raised[thread] += counter.compare_and_set(KEY, value, value + 1)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=count, args=(thread,)) for thread in range(len(raised))]
        for thread in threads:
            thread.start()
        wait_for(lambda: sum(raised) > 50 or failures, "some progress")
        table = cluster.table_of(members[0]).table
        owner = table.owner(partition_of(to_key_data(KEY), table.partition_count))
        cluster.kill(next(member for member in members if str(owner).startswith(member.address)))
        for thread in threads:
            thread.join(60)
        assert failures == []
        assert counter[KEY] == sum(raised) >= 400


def test_increments_of_threads_and_tasks_count_once_each_while_the_owner_dies(cluster: Cluster) -> None:
    members = cluster.start(3)
    told: list[int] = []
    failures: list[BaseException] = []
    enough = 600
    with cluster.client() as client:
        counter = client.map("m")
        assert counter.increment(KEY, by=0) == 0
        cluster.wait_redundant()

        def count() -> None:
            try:
                while len(told) < enough:
                    told.append(counter.increment(KEY))
            except BaseException as error:
                failures.append(error)

        async def count_too() -> None:
            async with phalanx.connect(cluster.addresses, cluster=cluster.name) as grid:

                async def one() -> None:
                    while len(told) < enough:
                        told.append(await grid.map("m").increment(KEY))

                await asyncio.gather(*(one() for _ in range(5)))

        threads = [threading.Thread(target=count) for _ in range(3)]
        threads.append(threading.Thread(target=lambda: asyncio.run(count_too())))
        for thread in threads:
            thread.start()
        wait_for(lambda: len(told) > 100 or failures, "some progress")
        table = cluster.table_of(members[0]).table
        owner = table.owner(partition_of(to_key_data(KEY), table.partition_count))
        cluster.kill(next(member for member in members if str(owner).startswith(member.address)))
        for thread in threads:
            thread.join(60)
        assert failures == []
        assert sorted(told) == list(range(1, len(told) + 1)), "each is told another number, and none is left out"
        assert counter[KEY] == len(told) >= enough
