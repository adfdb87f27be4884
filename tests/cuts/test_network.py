"""The machinery of real cuts itself: links, directions, what it says where it cannot work, and what it leaves behind."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from cuts.network import Network, why_there_is_none

here = pytest.mark.cuts


@pytest.fixture
def hosts() -> Iterator[Network]:
    if why := why_there_is_none():
        pytest.skip(f"no real cuts: {why}")
    with Network(3) as made:
        yield made


def reached(hosts: Network) -> set[tuple[int, int]]:
    """Who reaches whom, as numbers of hosts."""
    number = {host: place for place, host in enumerate(hosts.hosts, 1)}
    return {(number[by], number[to]) for by, to in permutations(hosts.hosts, 2) if hosts.reaches(by, to)}


@here
def test_only_the_links_that_are_cut_are_cut_until_they_are_healed(hosts: Network) -> None:
    one, two, three = hosts.hosts
    everything = set(permutations((1, 2, 3), 2))
    assert reached(hosts) == everything
    hosts.cut(one, [two, three])
    assert reached(hosts) == {(2, 3), (3, 2)}
    hosts.heal()
    assert reached(hosts) == everything
    hosts.cut_one_way(two, three)  # a connection takes both directions
    assert reached(hosts) == everything - {(2, 3), (3, 2)}


@here
def test_one_direction_is_cut_and_the_other_is_not(hosts: Network) -> None:
    one, two, _ = hosts.hosts
    hosts.cut_one_way(one, two)
    for by, to, arrives in ((one, two, False), (two, one, True)):
        with hosts.inside(to):
            receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with receiver:
            receiver.bind((to, 9999))
            receiver.settimeout(5.0 if arrives else 0.3)
            with hosts.inside(by), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(b"hello", (to, 9999))
            if arrives:
                assert receiver.recv(10) == b"hello"
            else:
                with pytest.raises(TimeoutError):
                    receiver.recv(10)


@here
def test_what_it_made_is_gone_in_the_end_and_what_a_killed_run_left_is_removed(hosts: Network) -> None:
    folder = Path("/run/netns")
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = folder / f"phalanx-cuts-{gone.pid}-1-hub"
    subprocess.run(["ip", "netns", "add", left.name], check=True)
    home = os.readlink("/proc/thread-self/ns/net")
    with Network(2) as further:
        assert not left.exists()
        ours = {path.name for path in folder.glob(f"phalanx-cuts-{os.getpid()}-*")}
        assert len(ours) == 4 + 3  # those of the fixture, too
        with further.inside(further.hosts[0]):
            assert os.readlink("/proc/thread-self/ns/net") != home
    hosts.close()
    assert os.readlink("/proc/thread-self/ns/net") == home
    assert not list(folder.glob(f"phalanx-cuts-{os.getpid()}-*"))


def test_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    why = why_there_is_none.__wrapped__
    monkeypatch.setattr(shutil, "which", lambda tool: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert why() == "no ip and no nft here: apt-get install iproute2 nftables"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert why() == "it takes root: only root may make network namespaces"
