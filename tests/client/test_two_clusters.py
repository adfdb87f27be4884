"""A client whose cluster is gone goes over to what became of it, and never to another cluster that was there beside it."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import phalanx
from phalanx.common.errors import PhalanxError, UnavailableError
from phalanx.runtime.process.processes import MemberProcess, start_member_process
from support.processes import Cluster, free_port, wait_for


def start_apart(cluster: Cluster, *, port: int, seeds: tuple[str, ...] = ()) -> MemberProcess:
    """A member of that name at a port; without seeds it forms a cluster of its own."""
    member = start_member_process(
        cluster.folder / f"apart-{port}-{len(cluster.members)}.log", seeds=list(seeds), cluster=cluster.name,
        port=port,
    )  # fmt: skip
    cluster.adopt(member)
    member.wait_ready()
    return member


@contextmanager
def two_clusters(cluster: Cluster) -> Iterator[tuple[MemberProcess, str, Callable[[], None]]]:
    """The first one's member, the addresses of both, and what starts the other one, which has an entry that is not to be
    read: a client that connects before that sees one cluster only."""
    (first,) = cluster.start()
    port = free_port()

    def start_other() -> None:
        other = start_apart(cluster, port=port)
        with phalanx.Client(other.address, cluster=cluster.name) as client:
            client.map("m")["key"] = "of the other"

    yield first, f"{first.address},127.0.0.1:{port}", start_other


def refuses(cluster: Cluster, error: PhalanxError) -> bool:
    """Whether a call was refused for the other cluster, and not only because its own one did not answer in time."""
    if "two clusters" not in str(error):
        return False
    for named in (repr(cluster.name), *(member.member for member in cluster.members)):
        assert named in str(error)
    return True


def read_refused(cluster: Cluster, entries: Any) -> bool:
    try:
        found = entries["key"]
    except UnavailableError as error:
        return refuses(cluster, error)
    raise AssertionError(f"read {found!r}")


def test_a_blocking_client_does_not_go_over_to_a_cluster_beside_its_own(cluster: Cluster) -> None:
    with (
        two_clusters(cluster) as (first, both, start_other),
        phalanx.Client(both, cluster=cluster.name, call_timeout_s=1) as client,
    ):
        entries = client.map("m")
        entries["key"] = "own"
        start_other()
        assert entries["key"] == "own"
        cluster.pause(first)
        for _ in range(3):
            wait_for(lambda: read_refused(cluster, entries), "the call is refused")
        cluster.resume(first)
        wait_for(lambda: entries["key"] == "own", "its own cluster answers again")
        first.kill()
        first.wait()
        wait_for(lambda: read_refused(cluster, entries), "the call is refused")
        if not (child := os.fork()):
            try:
                wait_for(lambda: read_refused(cluster, entries), "the call of the child is refused")
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0


def test_an_asyncio_client_does_not_go_over_to_a_cluster_beside_its_own(cluster: Cluster) -> None:
    async def run(first: MemberProcess, both: str, start_other: Callable[[], None]) -> None:
        async with phalanx.connect(both, cluster=cluster.name, call_timeout_s=1) as client:
            entries = client.map("m")
            await entries.put("key", "own")
            start_other()
            assert await entries.get("key") == "own"
            for hurt, calls in ((cluster.pause, 3), (MemberProcess.kill, 1)):
                hurt(first)
                for _ in range(calls):
                    refused = False
                    while not refused:
                        with pytest.raises(UnavailableError) as told:
                            print("read", await entries.get("key"))
                        refused = refuses(cluster, told.value)

    with two_clusters(cluster) as prepared:
        asyncio.run(asyncio.wait_for(run(*prepared), 60))


def test_a_client_finds_its_cluster_after_a_restart_of_all_of_it(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """On its own address, then on another one that the client was given."""
    (before,) = cluster.start()
    port, spare = int(before.address.rpartition(":")[2]), free_port()
    with phalanx.Client(f"{before.address},127.0.0.1:{spare}", cluster=cluster.name) as client:
        entries = client.map("m")
        for place in (port, spare):
            entries["key"] = place
            cluster.kill(before)
            after = start_apart(cluster, port=place)
            with caplog.at_level(logging.WARNING, "phalanx.client"):
                assert "key" not in entries
            [told] = [record.getMessage() for record in caplog.records if "is gone" in record.getMessage()]
            assert before.member in told
            assert after.member in told
            caplog.clear()
            before = after


@pytest.mark.long
def test_a_client_follows_its_cluster_into_the_one_with_which_it_is_merged(cluster: Cluster) -> None:
    """Two clusters that were founded apart become one when a member of one of them looks for the other."""
    (first,) = cluster.start()
    with phalanx.Client(first.address, cluster=cluster.name) as client:
        entries = client.map("m")
        entries["key"] = 1
        port = free_port()
        larger = start_apart(cluster, port=port)
        with phalanx.Client(larger.address, cluster=cluster.name) as other:
            other.map("m")["other"] = 2
        # The first that starts with itself as the first seed forms a cluster when it finds nobody: here it finds one.
        start_apart(cluster, port=free_port(), seeds=(larger.address, first.address))
        wait_for(lambda: len(cluster.view_of(larger).members) == 3, "both are one cluster")
        founders = cluster.table_of(larger).founders
        assert set(founders) == {first.member, larger.member}
        assert entries["key"] == 1
        assert entries["other"] == 2
