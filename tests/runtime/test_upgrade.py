"""Real members of the last release and of this tree in one cluster: upgraded member by member under load, rolled back half-way,
with the master killed meanwhile (docs/how-to/upgrade.md). Nothing that was acknowledged is missing, and no call takes longer than
a failover."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import phalanx
from phalanx.client.ask import Inquirer
from phalanx.common.versions import PROTOCOL_VERSION
from phalanx.runtime.process.processes import PHALANX, start_member_process
from support import released
from support.processes import Cluster, wait_for
from support.rolling import NEW, OLD, Load, Upgrade


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


def store_dicts_as_json(cluster: Cluster) -> str:
    """Set it for the map of an old client, and return what was told."""
    at = ("--at", cluster.members[-1].address, "--cluster", cluster.name)
    command = [*PHALANX, "map", "dicts", "of an old client", "json", *at]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout + done.stderr


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
    assert store_dicts_as_json(cluster) == "of an old client\tdicts json\n"
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
        assert old_program(cluster.addresses, cluster.name) == "19900 201 2"
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
    assert (
        f"the cluster version is {PROTOCOL_VERSION}, and the joiner speaks protocols {released.OLDEST} to {released.PROTOCOL}"
        in told
    )
    assert "start it with the release of the other members" in told
