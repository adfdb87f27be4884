"""Three pods that start at once find each other by a real name server whose answers come by and by, fail and change."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuts.network import why_there_is_none
from phalanx.client.ask import Inquirer
from phalanx.common.ids import Address, address_of
from support.pods import NAME, PORT, Pods, container, pods
from support.processes import wait_for


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Pods]:
    why = why_there_is_none()
    if why:
        pytest.skip(f"no network of pods: {why}")
    with pods(3, tmp_path) as made:
        yield made
        for host in made.hosts:
            print(host, made.log(host) if (made.folder / f"{host}.log").exists() else "never ran", sep="\n")


def members_seen(where: Pods, host: str) -> list[str]:
    secret = where.folder / "secrets" / "cluster-secret"
    with where.network.inside(host), Inquirer(Address(f"127.0.0.1:{PORT}"), secret_file=secret) as inquirer:
        return [address_of(member) for member in inquirer.members().view.members]


@pytest.mark.cuts
def test_pods_that_see_different_parts_of_the_dns_become_one_cluster(three: Pods) -> None:
    one, two, other = three.hosts
    answers = three.answers
    # Nobody has a record yet: every pod is told that there is no such name, and founds nothing.
    for host in three.hosts:
        three.start(host)
    wait_for(lambda: min(answers.asked[host] for host in three.hosts) >= 4, "all have asked the name server twice")
    assert not any("joined the cluster" in three.log(host) for host in three.hosts)
    assert all("does not find all seeds" in three.log(host) for host in three.hosts)
    # Each learns of another part.
    answers.of |= {one: [one], two: [one, two], other: [other, one]}
    wait_for(lambda: len(members_seen(three, other)) == 3, "one cluster of three", 60)
    assert sorted(members_seen(three, one)) == sorted(f"{host}:{PORT}" for host in three.hosts)
    founded = sum(three.log(host).count("size:1, ver:1") for host in three.hosts)
    assert founded == 1, "only one of them has founded a cluster"

    # A client by the name; the name server tells it one address only.
    put = three.run(two, "map", "put", "prices", "apple", "1", "--at", f"dns:{NAME}:{PORT}")
    assert put.returncode == 0, put.stderr

    # The kubelet ends a pod: first the hook, which waits until others hold all, then SIGTERM.
    entry, *arguments = container()["lifecycle"]["preStop"]["exec"]["command"]
    assert entry == "phalanx"
    hook = three.run(one, *arguments)
    assert hook.returncode == 0, hook.stdout + hook.stderr
    three.running[one].send_signal(signal.SIGTERM)
    assert three.running[one].wait(90) == 0, three.log(one)
    assert "has left: " in three.log(one)

    # It comes back while the name server fails for it, or says nothing.
    answers.of = {"everybody": [two, other]}
    answers.fails.add(one)
    three.start(one)
    wait_for(lambda: "Temporary failure in name resolution" in three.log(one), "the failure is told")
    answers.fails.clear()
    wait_for(lambda: len(members_seen(three, one)) == 3, "it is back", 60)
    got = three.run(one, "map", "get", "prices", "apple", "--at", f"dns:{NAME}:{PORT}")
    assert got.stdout.strip() == "1", got.stderr
