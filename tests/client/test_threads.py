"""Threads on one blocking client: calls beside each other, time limits that hold, and calls that are broken off."""

import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import phalanx
from phalanx.client.ask import Inquirer
from phalanx.client.blocking.session_pool import IDLE_MS, LOOK_EVERY_MS
from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_key_data
from phalanx.common.errors import ClientClosed, ConnectError, IndeterminateWrite, PhalanxError, UnavailableError
from phalanx.common.ids import Address, MemberId, address_of
from support.forks import in_child
from support.processes import Cluster, wait_for

MANY = 15_000_000
LATE_S = 2.5
"""How much later than its limit a call may end on a busy machine."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two members without backups, for all tests of this file."""
    members = Cluster(tmp_path_factory.mktemp("threads"))
    try:
        members.start(2, options=("--backup-count", "0"))
        yield members
    finally:
        members.stop()


@pytest.fixture
def client(cluster: Cluster) -> Iterator[phalanx.Client]:
    with cluster.client() as grid:
        grid.map("m").put_all({number: number for number in range(300)})
        yield grid


def keys_of(client: phalanx.Client, member: MemberId | None, count: int = 20) -> list[int]:
    """Keys that the member owns."""
    table = client.partition_table()
    owned = [n for n in range(300) if table.owner(partition_of(to_key_data(n), table.partition_count)) == member]
    assert len(owned) >= count
    return owned[:count]


class Paused:
    """The second member hangs within this."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.member = cluster.members[1]

    def __enter__(self) -> "Paused":
        self._cluster.pause(self.member)
        return self

    def __exit__(self, *error: object) -> None:
        self._cluster.resume(self.member)


def timed(work: Callable[[], Any]) -> tuple[BaseException | None, float]:
    """What the work raised, and how long it took."""
    began = time.monotonic()
    try:
        work()
    except (PhalanxError, KeyboardInterrupt) as error:
        return error, time.monotonic() - began
    return None, time.monotonic() - began


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """A thread that does the work, and what comes of it."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(timed(work)))
    thread.start()
    return thread, found


def test_threads_read_and_write_what_is_theirs(client: phalanx.Client) -> None:
    entries = client.map("m")
    failures: list[str] = []

    def work(thread: int) -> None:
        for number in range(thread, 300, 8):
            if entries[number] != number:
                failures.append(f"{number} is not itself")
            entries[thread, number] = number
            if entries.get_all([(thread, number), number]) != {(thread, number): number, number: number}:
                failures.append(f"{number} of many is not itself")

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert 1 <= len(client._sessions._idle) <= 8, "as many as threads were in calls at once"


def test_a_large_write_to_a_member_that_hangs_ends_in_time_and_holds_up_nobody(
    client: phalanx.Client, cluster: Cluster
) -> None:
    first, second = (member.member for member in cluster.members)
    with cluster.client(call_timeout_s=2.0) as hasty, Paused(cluster):
        entries = hasty.map("m")
        stuck, others = keys_of(client, second)[0], keys_of(client, first)
        entries.get(others[0])
        writing, found = in_thread(lambda: entries.put(stuck, b"x" * MANY))
        reading, found_too = in_thread(lambda: entries.get(stuck))
        for number in others * 5:
            assert entries[number] == number
        assert writing.is_alive(), "the others were answered while it waited"
        for thread in (writing, reading):
            thread.join(30)
        for error, took_s in (*found, *found_too):
            assert isinstance(error, UnavailableError | IndeterminateWrite)
            assert 1.9 < took_s < 2 + LATE_S
    wait_for(lambda: client.map("m").get(stuck) == stuck, "what was sent in part only is not applied")


def test_closing_ends_calls_of_other_threads(cluster: Cluster, client: phalanx.Client) -> None:
    with Paused(cluster):
        other = cluster.client()
        entries, stuck = other.map("m"), keys_of(client, cluster.members[1].member)[0]
        calls = [in_thread(lambda: entries.get(stuck)), in_thread(lambda: entries.put(stuck, stuck))]
        calls += [in_thread(entries.size)]
        time.sleep(0.5)
        _, took_s = timed(other.close)
        for thread, _ in calls:
            thread.join(5)
        assert took_s < LATE_S
        for _, [(error, took_s)] in calls:
            assert "the client is closed" in str(error)
            assert isinstance(error, ClientClosed | IndeterminateWrite)
            assert took_s < 0.5 + LATE_S
        with pytest.raises(ClientClosed, match="the client is closed"):
            entries.get(1)
        other.close()


def test_a_call_that_was_broken_off_leaves_its_answer_to_nobody(cluster: Cluster, client: phalanx.Client) -> None:
    """Ctrl-C while a member hangs: what it answers later is not read as the answer to another question."""
    entries, owned = client.map("m"), keys_of(client, cluster.members[1].member)
    assert entries[owned[0]] == owned[0]

    def interrupt(signal_number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    earlier = signal.signal(signal.SIGUSR1, interrupt)
    try:
        for number in owned[:3]:
            with Paused(cluster):
                timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))
                timer.start()
                error, _ = timed(partial(entries.get, number))
                assert isinstance(error, KeyboardInterrupt)
                timer.join()
            for other in owned:
                assert entries[other] == other
    finally:
        signal.signal(signal.SIGUSR1, earlier)


@pytest.mark.usefixtures("client")
def test_a_program_with_thousands_of_descriptors_connects(cluster: Cluster) -> None:
    def work() -> int:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(1_500)]
        with cluster.client() as client:
            for number in range(50):
                client.map("many")[number] = number
            sockets = {
                connection.socket.fileno()
                for session in client._sessions._idle
                for connection in session.driver.connections.values()
            }
            with Inquirer(Address(cluster.members[0].address), cluster=cluster.name) as inquirer:
                assert inquirer.members().view.members
        assert min(sockets) > 1_024 < len(taken)
        return len(sockets)

    assert in_child(work) == 2


@pytest.fixture
def deaf() -> Iterator[str]:
    """An address where the system takes no further connection, and answers nothing."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(server.getsockname())
        yield f"127.0.0.1:{server.getsockname()[1]}"
        for each in waiting:
            each.close()


def test_a_seed_that_answers_nothing_takes_no_longer_than_the_limit(deaf: str, cluster: Cluster) -> None:
    error, took_s = timed(lambda: phalanx.Client(deaf, cluster=cluster.name, connect_timeout_s=1.0))
    assert isinstance(error, ConnectError)
    assert 0.9 < took_s < 1 + LATE_S
    with phalanx.Client(f"{deaf},{cluster.addresses}", cluster=cluster.name) as client:
        assert client.map("m").get("nothing") is None


def test_lanes_of_threads_that_are_gone_are_closed(client: phalanx.Client) -> None:
    sessions = client._sessions
    with sessions.session() as one, sessions.session():
        assert one.ask(client.partition_table().members[0], phalanx.wire.messages.GetMembers(client.next_id()))
    assert len(sessions._idle) == 2
    one.used_at -= IDLE_MS
    sessions._idle[0].used_at, sessions._look_at = one.used_at, sessions._look_at - LOOK_EVERY_MS
    assert client.map("m")[1] == 1
    assert len(sessions._idle) == 1


def test_what_one_thread_learns_of_the_table_the_others_know(client: phalanx.Client) -> None:
    """A session that has never asked anybody goes straight to the owner."""
    sessions = client._sessions
    with sessions.session():
        assert client.map("m")[5] == 5
        [session] = sessions._idle
        owner = client.partition_table().owner(partition_of(to_key_data(5), client.partition_count))
        assert [address_of(member) for member in session.driver.connections] == [address_of(owner)]  # type: ignore[arg-type]
