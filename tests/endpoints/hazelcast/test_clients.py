"""Official clients of four languages against real members, one of which is killed under load."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hazelcast.client import HazelcastClient

from endpoints.hazelcast.languages import command_of
from support.processes import Cluster, wait_for

SERVE = ("--serve", "hazelcast")


@contextmanager
def writer(cluster: Cluster, language: str) -> Iterator[subprocess.Popen[str]]:
    """A running writer that has said that it is ready."""
    command = [*command_of(language), cluster.name, cluster.addresses, language]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        yield process
    finally:
        process.kill()
        process.wait()


def result_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    """End a writer, and return what it was told."""
    out, _ = process.communicate(timeout=60)
    told: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return told


def stored(cluster: Cluster, language: str) -> list[Any]:
    with cluster.client() as grid:
        shared = grid.map("shared")
        return [shared.get(f"{language}-{index}") for index in range(20)]


def writes_through_a_crash(cluster: Cluster, language: str) -> None:
    cluster.start(3, options=SERVE)
    with cluster.client() as grid:
        grid.map("shared", dicts="json")["from-python"] = {"title": "Iliad", "parts": [1, 2.5, None]}
    with writer(cluster, language) as process:
        wait_for(lambda: None not in stored(cluster, language), "the writer has written")
        cluster.wait_redundant()
        cluster.kill(cluster.members[1])
        cluster.wait_views()
        before = stored(cluster, language)
        wait_for(
            lambda: all(now != then for now, then in zip(stored(cluster, language), before, strict=True)),
            "the writer goes on with all keys",
        )
        told = result_of(process)
    assert told["violations"] == []
    assert told["acknowledged"] >= 40
    if language == "node":
        assert told["read"] == {"title": "Iliad", "parts": [1, 2.5, None]}
        with cluster.client() as grid:
            assert grid.map("shared", dicts="json")["node-json"] == {"from": "node", "list": [1, 2]}


def test_python_writes_through_a_crash(cluster: Cluster) -> None:
    """No acknowledged write is missing, and no answer is wrong, while a member is killed."""
    writes_through_a_crash(cluster, "python")


@pytest.mark.long  # what these need is fetched from registries, and built
@pytest.mark.timeout(600)
@pytest.mark.parametrize("language", ["node", "java", "go"])
def test_other_languages_write_through_a_crash(cluster: Cluster, language: str) -> None:
    writes_through_a_crash(cluster, language)


def test_a_member_that_leaves_is_left_in_order(cluster: Cluster) -> None:
    """A member hands over what it holds while a client writes: whatever the client was told holds."""
    cluster.start(3, options=SERVE)
    with writer(cluster, "python") as process:
        wait_for(lambda: None not in stored(cluster, "python"), "the writer has written")
        assert cluster.terminate(cluster.members[1]) == 0
        before = stored(cluster, "python")
        wait_for(
            lambda: all(now != then for now, then in zip(stored(cluster, "python"), before, strict=True)),
            "the writer goes on with all keys",
        )
        told = result_of(process)
    assert told["violations"] == []
    assert told["acknowledged"] >= 40


def test_when_all_data_is_gone_clients_are_told_another_cluster(cluster: Cluster) -> None:
    """A client goes on by itself, knows that it is another cluster, and finds nothing of the first one."""
    (member,) = cluster.start(1, options=SERVE)
    client = HazelcastClient(
        cluster_name=cluster.name, cluster_members=[member.address], retry_initial_backoff=0.1, retry_max_backoff=0.2
    )
    try:
        shared: Any = client.get_map("m").blocking()
        shared.put("a", "b")
        first = client._connection_manager._cluster_id
        cluster.kill(member)
        cluster.start(1, options=(*SERVE, "--port", member.address.rpartition(":")[2]))
        wait_for(
            lambda: client._connection_manager._cluster_id not in (first, None), "the client knows the new cluster"
        )
        assert shared.get("a") is None
        shared.put("a", "c")
        assert shared.get("a") == "c"
    finally:
        client.shutdown()
