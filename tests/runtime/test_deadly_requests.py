"""A request that ends whoever serves it ends two of four members: it is not asked of a third."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from hazelcast.client import HazelcastClient
from hazelcast.errors import HazelcastError

import phalanx
from phalanx.common.errors import IndeterminateWrite, UnavailableError
from support.processes import Cluster, wait_for

pytestmark = [pytest.mark.timeout(180)]

PROGRAM = (sys.executable, str(Path(__file__).with_name("deadly_member.py")))
MAP = "deadly"
TOLD = "two members ended while they served this"


@pytest.fixture
def four(cluster: Cluster) -> Cluster:
    cluster.start(4, program=PROGRAM)
    with cluster.client() as grid:
        grid.map("other").put_all({number: number for number in range(100)})
    cluster.wait_redundant()
    return cluster


def wait_two_dead(cluster: Cluster) -> None:
    """Until two processes have ended with the status of the crash; the others serve."""
    wait_for(lambda: len([m for m in cluster.members if m.process.poll() is not None]) >= 2, "two members have ended")
    ended = [member for member in cluster.members if member.process.poll() is not None]
    assert [member.process.returncode for member in ended] == [70, 70]
    cluster.members = [member for member in cluster.members if member not in ended]
    cluster.wait_redundant()
    with cluster.client() as grid:
        grid.map("other").put("still", "served")
        assert grid.map("other").get("still") == "served"
    assert len(cluster.members) == 2


def ask_blocking(cluster: Cluster, ask: Callable[[Any], Any]) -> Exception:
    with cluster.client() as grid, pytest.raises((IndeterminateWrite, UnavailableError), match=TOLD) as raised:
        ask(grid.map(MAP))
    return raised.value


def ask_in_loop(cluster: Cluster, ask: Callable[[Any], Any]) -> Exception:
    async def run() -> Exception:
        async with await phalanx.connect(cluster.addresses, cluster=cluster.name) as grid:
            with pytest.raises((IndeterminateWrite, UnavailableError), match=TOLD) as raised:
                await ask(grid.map(MAP))
        return raised.value

    return asyncio.run(run())


@contextmanager
def lite_member(cluster: Cluster, **settings: Any) -> Iterator[Any]:
    """A member of this process without data: whatever it is asked for it asks others for."""
    config = phalanx.Config(
        port=0, lite=True, seeds=tuple(cluster.addresses.split(",")), cluster=cluster.name, **settings
    )
    with phalanx.start_member_in_thread(config) as member:
        yield member


def ask_embedded(cluster: Cluster, ask: Callable[[Any], Any]) -> Exception:
    with lite_member(cluster) as member, pytest.raises((IndeterminateWrite, UnavailableError), match=TOLD) as raised:
        ask(member.map(MAP))
    return raised.value


def test_of_a_blocking_client(four: Cluster) -> None:
    error = ask_blocking(four, lambda map_: map_.update("k", "add", 1))
    assert isinstance(error, IndeterminateWrite)
    wait_two_dead(four)


@pytest.mark.long
@pytest.mark.parametrize("way", [ask_blocking, ask_in_loop, ask_embedded], ids=["blocking", "asyncio", "embedded"])
@pytest.mark.parametrize(
    ("ask", "kind"),
    [
        pytest.param(lambda map_: map_.get("k"), UnavailableError, id="get"),
        pytest.param(lambda map_: map_.put_all({"k": 1}), IndeterminateWrite, id="put_all"),
        pytest.param(lambda map_: map_.get_all(["k"]), UnavailableError, id="get_all"),
        pytest.param(lambda map_: map_.update_where([], "add", 1), IndeterminateWrite, id="update_where"),
    ],
)
def test_of_any_client(four: Cluster, way: Any, ask: Any, kind: type[Exception]) -> None:
    assert isinstance(way(four, ask), kind)
    wait_two_dead(four)


@pytest.mark.long
def test_of_a_redis_client(four: Cluster) -> None:
    with lite_member(four, serve=("redis",), redis_maps=(MAP,)) as member:
        client = redis.Redis(port=int(member.address.rpartition(":")[2]), socket_timeout=60)
        with pytest.raises(redis.ResponseError, match=f"INDETERMINATE.*{TOLD}"):
            client.set("k", "v")
        wait_two_dead(four)


@pytest.mark.long
def test_of_a_hazelcast_client(four: Cluster) -> None:
    with lite_member(four, serve=("hazelcast",)) as member:
        client = HazelcastClient(
            cluster_members=[member.address], cluster_name=four.name, smart_routing=False, invocation_timeout=60
        )
        try:
            with pytest.raises(HazelcastError, match=TOLD):
                client.get_map(MAP).blocking().put("k", "v")  # type: ignore[arg-type]  # of any types
            wait_two_dead(four)
        finally:
            client.shutdown()
