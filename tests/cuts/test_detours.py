"""A client whose way to one owner alone is cut asks it through another member, and directly again when the way is back."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import phalanx
from cuts.machines import CLUSTER, LocalClient, Machines
from cuts.network import NetworkWithClient, why_there_is_none
from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_key_data
from support.processes import wait_for

pytestmark = [pytest.mark.cuts, pytest.mark.timeout(300)]

KEYS = 40
CALL_S = 15.0


class Setting:
    """Three members, a client on a host of its own, and keys of the member to which its way is cut."""

    def __init__(self, machines: Machines, network: NetworkWithClient) -> None:
        self.machines, self.network = machines, network
        table = machines.table_of("N3").table
        (self.cut_off,) = [member for member in table.members if member == machines.said_by("N3").view.members[2]]
        self.host = self.cut_off.partition(":")[0]
        mine = (f"key {number}" for number in range(10_000))
        self.keys = [key for key in mine if table.owner(partition_of(to_key_data(key), 31)) == self.cut_off][:KEYS]

    def client(self, **options: Any) -> LocalClient:
        return LocalClient(self.machines, self.network.of_clients, {"call_timeout_s": CALL_S} | options)

    def cut(self) -> None:
        self.network.cut(self.network.of_clients, self.host)


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    if why := why_there_is_none():
        pytest.skip(f"no real cuts: {why}")
    with contextlib.ExitStack() as stack:
        network = NetworkWithClient(4)
        stack.enter_context(network)
        machines = stack.enter_context(Machines(network, tmp_path))
        machines.start()
        with machines.client("N1") as grid:
            grid.call("m", "put", "any", 1)
        machines.wait_whole(machines.everybody)
        yield Setting(machines, network)
        print(machines.logs())


def test_a_blocking_client_goes_round_a_cut_and_back(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    client = setting.client()
    try:
        for key in setting.keys:
            client.call("m", "increment", key)
        setting.cut()
        for _ in range(3):
            for key in setting.keys:
                client.call("m", "increment", key)
        assert [client.call("m", "get", key) for key in setting.keys] == [4] * KEYS
        assert f"{setting.cut_off} cannot be reached from here: asking it through" in caplog.text
        setting.network.heal()

        def is_back() -> bool:
            client.call("m", "get", setting.keys[0])
            return f"{setting.cut_off} can be reached from here again" in caplog.text

        wait_for(is_back, "the direct way is taken again", 60)
        assert [client.call("m", "increment", key) for key in setting.keys] == [5] * KEYS
    finally:
        client.close()


@pytest.mark.long
def test_threads_of_a_client_that_begins_behind_the_cut_count_each_increment_once(setting: Setting) -> None:
    setting.cut()
    client = setting.client()
    failures: list[Exception] = []

    def write() -> None:
        try:
            for key in setting.keys:
                client.call("m", "increment", key)
        except Exception as error:
            failures.append(error)

    try:
        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert failures == []
        assert [client.call("m", "get", key) for key in setting.keys] == [4] * KEYS
    finally:
        client.close()


def test_an_asyncio_client_goes_round_a_cut_in_the_middle_of_its_calls(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls are under way when the cut comes and when it heals; each counts once."""
    caplog.set_level(logging.WARNING)

    async def run() -> None:
        addresses = setting.machines.addresses("N1 N2 N3")
        secret = setting.machines.secret_file
        async with phalanx.connect(addresses, cluster=CLUSTER, secret_file=secret, call_timeout_s=CALL_S) as grid:
            counts, done = grid.map("m"), 0

            async def count_all() -> None:
                nonlocal done
                await asyncio.gather(*(counts.increment(key) for key in setting.keys))
                done += 1

            for _ in range(5):
                await count_all()
            setting.cut()
            for _ in range(5):
                await count_all()
            assert "cannot be reached from here: asking it through" in caplog.text
            setting.network.heal()
            deadline = asyncio.get_running_loop().time() + 60
            while "can be reached from here again" not in caplog.text:
                assert asyncio.get_running_loop().time() < deadline
                await count_all()
            await count_all()
            assert list((await counts.get_all(setting.keys)).values()) == [done] * KEYS

    with setting.network.inside(setting.network.of_clients):
        asyncio.run(run())


@pytest.mark.long
def test_a_member_that_has_ended_is_asked_through_nobody(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    client = setting.client()
    try:
        for key in setting.keys:
            client.call("m", "increment", key)
        [process] = [p for p in setting.machines._processes if p.address.startswith(f"{setting.host}:")]
        process.kill()
        process.wait()
        assert [client.call("m", "increment", key) for key in setting.keys] == [2] * KEYS
        assert "asking it through" not in caplog.text
    finally:
        client.close()


def test_the_descriptors_of_a_host_that_vanished_are_free_again(tmp_path: Path) -> None:
    """Its connections are idle: nothing is sent that could fail."""
    if why := why_there_is_none():
        pytest.skip(f"no real cuts: {why}")
    with NetworkWithClient(2) as network, Machines(network, tmp_path) as machines:
        machines.start(tcp_keepalive_ms=1_000)
        (process,) = machines._processes
        clients = [LocalClient(machines, network.of_clients, {}) for _ in range(5)]
        for each in clients:
            each.call("m", "put", "key", 1)

        def descriptors() -> int:
            return sum(1 for _ in Path(f"/proc/{process.pid}/fd").iterdir())

        before = descriptors()
        network.cut(network.of_clients, network.hosts)
        wait_for(
            lambda: descriptors() <= before - 5, "the connections have ended", 30, lambda: f"{before} {descriptors()}"
        )
        for each in clients:
            each.close()
