"""A forked child has connections and an identity of its own, and leaves its parent's alone."""

import asyncio
import contextlib
import gc
import itertools
import multiprocessing
import operator
import os
import pickle
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import uvloop

import phalanx
from phalanx.client.staging import Staging, new_job_id
from phalanx.common.errors import IndeterminateWrite, UsageError
from phalanx.common.ids import Address
from phalanx.net.forking import close_inherited
from support.forks import Child, in_child
from support.processes import Cluster, wait_for
from support.raw_peers import RawPeer

KEYS = 200
numbers: Any = None
"""The map of these tests, as programs have one: made before their pool forks."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One member for all tests of this file."""
    members = Cluster(tmp_path_factory.mktemp("forks"))
    try:
        members.start()
        yield members
    finally:
        members.stop()


@pytest.fixture
def client(cluster: Cluster) -> Iterator[phalanx.Client]:
    global numbers
    with cluster.client() as grid:
        for name in grid.map_names():
            grid.map(name).clear()
        numbers = grid.map("numbers")
        numbers.put_all({number: number for number in range(KEYS)})
        numbers.get(0)
        yield grid


def look_up(number: int) -> int:
    found: int = numbers.get(number)
    return found


def local_ports(client: phalanx.Client) -> set[int]:
    return {
        connection.socket.getsockname()[1]
        for session in client._sessions._idle
        for connection in session.driver.connections.values()
    }


@pytest.mark.usefixtures("client")
def test_a_pool_of_forked_processes_reads_what_it_asks_for() -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        found = pool.map(look_up, range(KEYS), chunksize=1)
    assert found == list(range(KEYS))
    assert numbers.get(17) == 17


def raise_counter(counters: Any, key: str, times: int) -> int:
    """Raise a counter so many times, each time from what it was."""
    done = 0
    while done < times:
        value = counters[key]
        done += counters.compare_and_set(key, value, value + 1)
    return done


def test_children_and_threads_of_their_parent_raise_counters_once_each(client: phalanx.Client) -> None:
    """Three children are forked while threads of the parent write; one of them has threads, one has a child, too."""
    counters = client.map("counters")
    counters["all"] = 0
    raised = [0] * 3
    is_over = threading.Event()

    def go_on(thread: int) -> None:
        while not is_over.is_set():
            raised[thread] += raise_counter(counters, "all", 1)
            assert counters.put_if_absent(("parent", thread, raised[thread]), True) is None

    def in_threads() -> int:
        threads = [threading.Thread(target=raise_counter, args=(counters, "all", 20)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return 60

    def and_a_grandchild() -> int:
        return raise_counter(counters, "all", 20) + int(in_child(lambda: raise_counter(counters, "all", 20)))

    def and_entries() -> int:
        for number in range(20):
            assert counters.put_if_absent(("child", number), True) is None
        return raise_counter(counters, "all", 20)

    threads = [threading.Thread(target=go_on, args=(thread,)) for thread in range(len(raised))]
    for thread in threads:
        thread.start()
    wait_for(lambda: min(raised) > 5, "all threads write")
    children = [Child(work) for work in (in_threads, and_a_grandchild, and_entries)]
    in_children = sum(child.result() for child in children)
    is_over.set()
    for thread in threads:
        thread.join(30)
    assert counters["all"] == sum(raised) + in_children
    written = {("parent", thread, number + 1) for thread, most in enumerate(raised) for number in range(most)}
    assert set(counters) == {"all"} | written | {("child", number) for number in range(20)}


def test_a_child_does_not_touch_the_connections_of_its_parent(client: phalanx.Client) -> None:
    before = local_ports(client)

    def work() -> set[int]:
        inherited = local_ports(client)
        with client:
            assert numbers[3] == 3
            numbers["child"] = 1
            return inherited | local_ports(client)

    ports = in_child(work)
    assert len(ports) == 1
    assert ports.isdisjoint(before)
    assert numbers["child"] == 1
    assert local_ports(client) == before


def test_what_was_begun_before_the_fork_goes_on_in_both_processes(client: phalanx.Client) -> None:
    items = iter(numbers.items())
    begun = [next(items) for _ in range(5)]
    staging = Staging(client, "numbers", new_job_id())
    attempt = staging.attempt("1")

    def work() -> list[Any]:
        attempt.put_rows([phalanx.codec.values.to_key_data("staged")], [phalanx.codec.values.to_data(1)])
        assert staging.apply([attempt.staged()]) == client.partition_count
        return list(items)

    rest = in_child(work)
    mine = [*begun, *items]
    assert dict(mine) == {number: number for number in range(KEYS)} | ({"staged": 1} if "staged" in dict(mine) else {})
    assert {key: value for key, value in [*begun, *rest] if key != "staged"} == {n: n for n in range(KEYS)}
    assert numbers["staged"] == 1


def test_a_fork_while_another_thread_is_in_the_client_does_not_stop_the_child(client: phalanx.Client) -> None:
    with client._sessions._lock, client._shared._lock:
        child = Child(lambda: (client.refresh().partition_count, numbers[7]))
        assert child.result() == (client.partition_count, 7)


def test_a_fork_in_the_middle_of_a_call_ends_it_in_the_child_only(client: phalanx.Client, cluster: Cluster) -> None:
    """By a handler of a signal: the call goes on in both, and there is one answer."""
    results: list[Any] = []

    def fork(signal_number: int, frame: Any) -> None:
        results.append(os.fork())

    reading, writing = os.pipe()
    earlier = signal.signal(signal.SIGUSR1, fork)
    cluster.pause(cluster.members[0])
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
    resume = threading.Timer(1.0, cluster.resume, (cluster.members[0],))
    for each in (timer, resume):
        each.start()
    try:
        try:
            numbers["during"] = 1
            told = "done"
        except IndeterminateWrite as error:
            told = str(error)
        if results[-1] == 0:
            os.write(writing, told.encode())
            os._exit(0)
    finally:
        if results[-1:] != [0]:
            signal.signal(signal.SIGUSR1, earlier)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert b"the parent process gets its answer" in pipe.read()
    os.waitpid(results[-1], 0)
    assert told == "done"
    assert numbers["during"] == 1
    resume.join()


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_client_cannot_be_sent_to_another_process_and_says_what_to_do(client: phalanx.Client, method: str) -> None:
    context: Any = multiprocessing.get_context(method)  # the type of any context lacks `Process`
    process = context.Process(target=print, args=(client,))
    with pytest.raises(TypeError, match=r"pass the addresses.*a pool"):
        process.start()
    with pytest.raises(TypeError, match="pass the addresses"):
        pickle.dumps(numbers)


def make_and_look_up(address: str, cluster: str, number: int) -> int:
    with phalanx.Client(address, cluster=cluster) as client:
        found: int = client.map("numbers")[number]
        return found


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_process_that_was_not_forked_makes_its_own_client(cluster: Cluster, method: str) -> None:
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.starmap(make_and_look_up, [(cluster.addresses, cluster.name, 5)]) == [5]


def test_what_belongs_to_an_event_loop_says_in_a_child_that_it_is_the_parents() -> None:
    def use(of: Any) -> list[str]:
        told = []
        for call in (
            lambda: of.map("m").get(1), lambda: of.map("m").put(1, 3), lambda: of.map("m").put_all({1: 3}),
            lambda: of.map("m").size(), getattr(of, "stop", lambda: of.map("m").clear()),
        ):  # fmt: skip

            async def run(call: Any = call) -> None:
                await call()

            with pytest.raises(UsageError, match="belongs to the process from which this one was forked") as error:
                asyncio.run(run())
            told.append(str(error.value))
        return told

    async def run() -> None:
        member = await phalanx.start_member(phalanx.Config(port=0))
        async with phalanx.connect(member.address) as grid:
            await grid.map("m").put(1, 2)
            for of in (grid, member):
                assert len(in_child(partial(use, of))) == 5
            assert await grid.map("m").get(1) == 2
            in_child(lambda: asyncio.run(grid.close()))
            with pytest.raises(TypeError, match="pass the addresses"):
                pickle.dumps(grid)
            assert await grid.map("m").get(1) == await member.map("m").get(1) == 2
        await member.stop()

    asyncio.run(run())


# --- sockets of a member and of an asyncio client ---------------------------------------------------------------------

both_loops = pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])


class Idle:
    """A forked child that lives on, and does nothing, until the block ends. A context manager."""

    def __init__(self) -> None:
        reading, self._writing = os.pipe()
        self._child = Child(lambda: (gc.collect(), os.read(reading, 1)))
        os.close(reading)

    def __enter__(self) -> "Idle":
        return self

    def __exit__(self, *error: object) -> None:
        os.write(self._writing, b"x")
        os.close(self._writing)
        self._child.result()


async def in_time(condition: Callable[[], Any], what: str) -> None:
    await asyncio.to_thread(wait_for, condition, what)


@both_loops
def test_a_child_holds_neither_the_port_nor_the_connections_of_a_member(loop_factory: Any) -> None:
    async def run() -> None:
        one = await phalanx.start_member(phalanx.Config(port=0, cluster="test"))
        two = await phalanx.start_member(phalanx.Config(port=0, cluster="test", seeds=(Address(one.address),)))
        port = int(two.address.rpartition(":")[2])
        with RawPeer(two.address) as silent, RawPeer(two.address) as peer:
            await asyncio.to_thread(peer.greeted)
            await in_time(lambda: len(two.accepted.inbound) == 3, "all have arrived")
            of_two = one.accepted.peers[two.id]
            with Idle():
                await two.stop(drain=False)
                for each in (silent, peer):
                    await in_time(each.is_closed, "its end is seen")
                await in_time(lambda: of_two.transport is None, "the link's end is seen")
                again = await phalanx.start_member(
                    phalanx.Config(port=port, cluster="test", seeds=(Address(one.address),))
                )
                await again.stop(drain=False)
        await one.stop(drain=False)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())


@both_loops
def test_a_child_does_not_hold_the_connections_of_an_asyncio_client(loop_factory: Any) -> None:
    async def run() -> None:
        member = await phalanx.start_member(phalanx.Config(port=0, cluster="test"))
        grid = await phalanx.connect(member.address, cluster="test")
        await grid.map("m").put(1, 2)
        assert member.accepted.clients
        with Idle():
            await grid.close()
            await in_time(lambda: not member.accepted.clients, "the member sees that the client is gone")
        await member.stop(drain=False)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())


@both_loops
def test_the_parents_connections_serve_on_under_load_while_children_come_and_go(loop_factory: Any) -> None:
    async def run() -> None:
        one = await phalanx.start_member(phalanx.Config(port=0, cluster="test"))
        two = await phalanx.start_member(phalanx.Config(port=0, cluster="test", seeds=(Address(one.address),)))
        grid = await phalanx.connect(one.address, cluster="test")
        maps = [each.map("m") for each in (one, two, grid)]
        for each in maps:
            await each.put_all({("before", number): number for number in range(100)})
        written = [0] * len(maps)
        is_over = False

        def connections() -> list[Any]:
            sides = [*one._links._of.values(), *two._links._of.values(), *grid._links.values()]
            return sorted(map(id, [*sides, *one.accepted.inbound, *two.accepted.inbound]))

        async def write(index: int) -> None:
            while not is_over:
                number = written[index] = written[index] + 1
                assert await maps[index].put_if_absent((index, number), b"x" * 5_000) is None
                assert await maps[index].get((index, number)) is not None

        async def goes_on() -> None:
            goals = [each + 20 for each in written]
            await in_time(lambda: all(map(operator.ge, written, goals)) or failed(), "all write")

        def failed() -> bool:
            return any(task.done() for task in tasks)

        tasks = [asyncio.create_task(write(index)) for index in range(len(maps))]
        await goes_on()
        before = connections()
        for _ in range(3):
            with Idle():
                await goes_on()
            await goes_on()
        assert not failed(), tasks
        assert connections() == before
        is_over = True
        await asyncio.gather(*tasks)
        assert await maps[0].size() == 100 + sum(written)
        async with phalanx.connect(two.address, cluster="test") as more:  # it still listens
            assert await more.map("m").size() == 100 + sum(written)
        await grid.close()
        for member in (two, one):
            await member.stop(drain=False)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())


def test_inherited_copies_are_closed_where_no_descriptor_is_left() -> None:
    def work() -> list[str]:
        ends = socket.socketpair()
        numbers = [each.fileno() for each in ends]
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(numbers) + 20, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        with contextlib.suppress(OSError):
            while True:
                os.dup(numbers[0])
        close_inherited([-1, *numbers])
        return [os.readlink(f"/proc/self/fd/{number}") for number in numbers]

    assert in_child(work) == ["/dev/null"] * 2


def test_numbers_of_requests_do_not_tie_processes_to_each_other(client: phalanx.Client) -> None:
    """Parent and child write with the same numbers, under other names: neither is taken for a repetition."""
    letters = client.map("letters")

    def write(name: str) -> None:
        for number in range(30):
            assert letters.put_if_absent((name, number), number) is None
            assert letters.remove((name, number)) == number
            letters[name, number] = number

    child = Child(lambda: write("child"))
    write("parent")
    child.result()
    assert set(letters) == set(itertools.product(["child", "parent"], range(30)))
