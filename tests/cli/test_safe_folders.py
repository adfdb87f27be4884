"""What operators are told of members with folders: before they stop, and when they have."""

from support.commands import Command, asker
from support.processes import Cluster, wait_for
from support.stored_clusters import StoredCluster


def test_folders_are_told_before_and_after_the_last_member_stops(cluster: Cluster, phalanx_command: Command) -> None:
    stored = StoredCluster(cluster, "--backup-count=1")
    stored.start(range(2))
    with cluster.client() as grid:
        grid.map("filled").update({f"k{number}": number for number in range(300)})
    cluster.wait_redundant()
    run = asker(phalanx_command, cluster)
    wait_for(lambda: "its folder has all that it holds" in run("safe"), "the member has told how its disk does")
    said = wait_for(
        lambda: text if "one file system" in (text := run("safe", "--power")) else None, "both have told it"
    )
    assert "All members can lose power now" in said
    assert "all copies of 271 partitions are on that disk" in said
    assert run("safe", "--power", "--json")["may_lose_power"] is True
    assert run("safe", "--json")["disk"]["state"] == "ok"
    assert stored.terminate(1) == 0
    last = stored.member(0)
    wait_for(lambda: "it stays in the folder" in run("safe", "--graceful"), "only one is left")
    assert stored.terminate(0) == 0
    log = stored.log_of(last)
    assert "its folder keeps 271 replicas, for when it is started again" in log
    assert "the data ends with" not in log
