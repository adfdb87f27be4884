"""A cluster that was switched off waits for a member: whoever is asked says so, and for whom (DU-33)."""

import json
from functools import partial

import pytest

from phalanx.common.errors import PhalanxError
from support.commands import Ask, Command, asker
from support.http_asking import ask, until
from support.processes import Cluster, wait_for
from support.stored_clusters import StoredCluster


def assert_all_say_for_whom(run: Ask, at: int, missing: str) -> None:
    """What an operator can ask says for whom the cluster waits, and none of it names a command that loses data."""
    for text in [run(command, at=at) for command in ("members", "partitions", "safe")]:
        assert f"he cluster was switched off and waits for {missing} (last seen at " in text
        assert "accept" not in text
    objects = [run(command, "--json", at=at) for command in ("members", "partitions", "safe")]
    assert [each["restart_wait"]["members"] for each in objects] == [[missing]] * len(objects)


def names_alone(port: int, missing: str) -> bool:
    """Whether only this one is waited for: a member that has joined is named too, until the master knows its folder."""
    return f"the cluster was switched off and waits for {missing} (last seen" in until(port, "/readyz", 503)


def test_whichever_member_is_asked_says_for_whom_the_cluster_waits(cluster: Cluster, phalanx_command: Command) -> None:
    stored = StoredCluster(cluster, "--backup-count=0")
    stored.start(range(3))
    with cluster.client() as grid:
        grid.map("filled").update({f"k{number}": number for number in range(300)})
    cluster.wait_redundant(backup_count=0)
    missing = stored.member(0).address
    stored.kill()
    waiting = [stored.begin(place, "--http-port=0") for place in (1, 2)]
    cluster.wait_views()
    ports = [json.loads(member.ready_line)["http_port"] for member in waiting]
    for member, port in zip(waiting, ports, strict=True):  # the master and the other one alike
        wait_for(partial(names_alone, port, missing), f"{missing} alone is waited for")
        assert ask(port, "/livez").status == 200
        assert ask(port, "/api/members").json["restart_wait"]["members"] == [missing]
        assert_all_say_for_whom(asker(phalanx_command, cluster), cluster.members.index(member), missing)
    with cluster.client(call_timeout_s=0.5) as grid, pytest.raises(PhalanxError, match=f"waits for {missing}"):
        grid.map("filled").get("k1")
    stored.start([0])
    for port in ports:
        until(port, "/readyz", 200)
    with cluster.client() as grid:
        assert grid.map("filled").get("k1") == 1
