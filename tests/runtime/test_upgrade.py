"""Real members of the last release and of this tree in one cluster: upgraded member by member under load, rolled back half-way,
with the master killed meanwhile (docs/how-to/upgrade.md). Nothing that was acknowledged is missing, and no call takes longer than
a failover."""

import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

import phalanx
import released
from phalanx.client.ask import Inquirer
from phalanx.common.versions import PROTOCOL_VERSION
from phalanx.common.view import MembersView
from phalanx.runtime.processes import PHALANX, MemberProcess, start_member_process
from processes import Cluster, wait_for

FAILOVER_S = 10.0
"""The default heartbeat_timeout_ms: the longest time until a member that fell silent has been replaced."""
OLD, NEW = released.command(), PHALANX


class Load:
    """Programs that write, each key once, and remember what was acknowledged and how long the longest call took."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stops = threading.Event()
        self.acknowledged: dict[str, int] = {}
        self.errors: list[str] = []
        self.longest_s = 0.0

    @contextmanager
    def running(self, writers: int = 2) -> Iterator[None]:
        threads = [threading.Thread(target=self._write, args=(number,)) for number in range(writers)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stops.set()
            for thread in threads:
                thread.join()

    def _write(self, number: int) -> None:
        with self._cluster.client() as grid:
            values = grid.map("written")
            for value in count():
                if self._stops.is_set():
                    return
                began = time.monotonic()
                try:
                    values[f"{number}-{value}"] = value
                    assert values[f"{number}-{value}"] == value
                except Exception as error:
                    self.errors.append(f"{type(error).__name__}: {error}")
                else:
                    self.acknowledged[f"{number}-{value}"] = value
                self.longest_s = max(self.longest_s, time.monotonic() - began)
                time.sleep(0.002)  # the cores are for the members

    def check(self) -> None:
        assert not self.errors, self.errors[:3]
        assert len(self.acknowledged) > 100
        with self._cluster.client() as grid:
            found = grid.map("written").get_all(self.acknowledged)
        assert found == self.acknowledged
        print(f"{len(self.acknowledged)} writes, the longest call took {self.longest_s:.2f} s")
        assert self.longest_s < FAILOVER_S


class Upgrade:
    """A cluster whose members change their release on their addresses."""

    def __init__(self, cluster: Cluster, members: int) -> None:
        self.cluster = cluster
        cluster.start(members, wait=False, program=OLD)
        self._wait_whole()

    def change(self, index: int, program: tuple[str, ...], *, kill: bool = False) -> None:
        """End the member at a place, and start one with another release on its address."""
        cluster = self.cluster
        member = cluster.members[index]
        if kill:
            cluster.kill(member)
        else:
            assert cluster.terminate(member) == 0
        port = int(member.address.rpartition(":")[2])
        new = start_member_process(
            cluster.folder / f"member-{time.monotonic_ns()}.log",
            port=port,
            seeds=[each.address for each in cluster.members],
            cluster=cluster.name,
            event_log=cluster.event_log,
            program=program,
        )
        cluster.adopt(new)
        cluster.members.insert(index, cluster.members.pop())
        self._wait_whole()

    def master(self) -> int:
        """The place of the master."""
        address = self.view().master.partition("/")[0]
        return next(place for place, each in enumerate(self.cluster.members) if each.address == address)

    def view(self, member: MemberProcess | None = None) -> MembersView:
        return self.cluster.view_of(member or self.cluster.members[0])

    def _wait_whole(self) -> None:
        cluster = self.cluster

        def agreed() -> bool:
            # Members of the last release do not tell the fields of a view that they do not know.
            views = [self.view(member) for member in cluster.members]
            same = all((view.id, view.members) == (views[0].id, views[0].members) for view in views)
            return same and len(views[0].members) == len(cluster.members)

        wait_for(agreed, "all members have one list")
        with cluster.client() as grid:
            grid.map("written").put("begun", 0)  # partitions are assigned when somebody uses them
        cluster.wait_redundant()


def wait_raised(upgrade: Upgrade) -> None:
    def raised() -> bool:
        return all(upgrade.view(member).cluster_version == PROTOCOL_VERSION for member in upgrade.cluster.members)

    wait_for(raised, "the cluster version is raised")


def old_program(addresses: str, name: str) -> str:
    """What a program of the last release prints that reads and writes a map."""
    program = f"""
        import phalanx
        with phalanx.Client({addresses!r}, cluster={name!r}) as grid:
            values = grid.map("of an old client")
            values.put_all({{n: n for n in range(200)}})
            print(sum(values.get_all(range(200)).values()), len(values), values.increment("counter"))
    """
    done = subprocess.run(
        [*OLD[:2], sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_cluster_is_upgraded_member_by_member_and_rolled_back_half_way(cluster: Cluster) -> None:
    upgrade = Upgrade(cluster, 2)
    load = Load(cluster)
    with load.running():
        upgrade.change(1, NEW)
        assert upgrade.view().cluster_version == released.PROTOCOL
        upgrade.change(1, OLD)
        upgrade.change(1, NEW)
        upgrade.change(upgrade.master(), NEW, kill=True)
        wait_raised(upgrade)
    load.check()
    assert old_program(cluster.addresses, cluster.name) == "19900 200 1"
    assert {release.newest for release in upgrade.view().all_releases().values()} == {PROTOCOL_VERSION}
    with Inquirer(cluster.members[0].address, cluster=cluster.name) as inquirer:
        assert {release.name for release in inquirer.members().view.releases} == {phalanx.__version__}


@pytest.mark.long
@pytest.mark.parametrize("secret", ["", "a secret of this cluster"])
def test_larger_clusters_are_upgraded_while_masters_are_killed(
    cluster: Cluster, tmp_path: Path, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if secret:
        file = tmp_path / "secret"
        file.write_text(secret)
        file.chmod(0o600)
        monkeypatch.setenv("PHALANX_SECRET_FILE", str(file))
    upgrade = Upgrade(cluster, 4)
    load = Load(cluster)
    with load.running(4):
        upgrade.change(upgrade.master(), NEW, kill=True)
        upgrade.change(upgrade.master(), NEW)
        for place in range(4):
            upgrade.change(place, OLD, kill=place % 2 == 0)
            assert upgrade.view().cluster_version == released.PROTOCOL
        assert old_program(cluster.addresses, cluster.name) == "19900 200 1"
        for place in range(4):
            upgrade.change(place, NEW, kill=place % 2 == 1)
        upgrade.change(upgrade.master(), NEW, kill=True)
        wait_raised(upgrade)
        assert old_program(cluster.addresses, cluster.name) == "19900 200 2"
    load.check()


def test_a_member_of_the_last_release_is_told_why_it_cannot_join_an_upgraded_cluster(cluster: Cluster) -> None:
    cluster.start(1)
    late = start_member_process(
        cluster.folder / "late.log", seeds=[cluster.members[0].address], cluster=cluster.name, program=OLD
    )
    cluster.adopt(late)
    try:
        assert late.wait(30) != 0
    finally:
        cluster.members.remove(late)
    told = (cluster.folder / "late.log").read_text()
    assert f"the cluster version is {PROTOCOL_VERSION}, and the joiner speaks protocol {released.PROTOCOL}" in told
    assert "start it with the release of the other members" in told
