"""Figure 5 of partial member disconnections: members that reach their master and not each other."""

import pytest

from cuts.conftest import Start
from cuts.machines import HASTY, SETTLE_S, STORED, Machines
from cuts.test_figures import one_cluster_again
from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_data
from phalanx.common.errors import IndeterminateWrite, UnavailableError
from support.processes import wait_for

pytestmark = [pytest.mark.long, pytest.mark.cuts, pytest.mark.timeout(400)]


def key_at(m: Machines, row: str) -> str:
    """A stored key whose partition has these replicas, the owner first."""
    rows = m.rows_of("N1")
    return next(key for key in STORED if rows[partition_of(to_data(key), HASTY["partition_count"])] == row)


def suspicions(m: Machines) -> dict[str, list[str]]:
    """Whom each member suspects now."""
    return {name: sorted(m.suspected_now(name)) for name in m.everybody.split()}


@pytest.mark.rows("PD-06", "PD-16")
def test_fig_5_with_the_feature_off_the_list_stays_and_calls_fail(machines: Start) -> None:
    """N2 -x- N3, N2 -x- N4, nothing is resolved: what the feature is for."""
    m = machines(4, partial_resolution_heartbeats=0)
    m.fill()
    version = m.said_by("N1").view.version
    m.cut("N2", "N3 N4")
    wanted = {"N1": [], "N2": ["N3", "N4"], "N3": ["N2"], "N4": ["N2"]}
    wait_for(lambda: suspicions(m) == wanted, f"suspicions {wanted}", SETTLE_S, m.seen)

    with m.client("N1", call_timeout_s=3.0) as grid:
        with pytest.raises((IndeterminateWrite, UnavailableError)):
            grid.call("stored", "put", key_at(m, "N2 N3"), 0)  # its backup does not confirm
        key = key_at(m, "N1 N3")
        grid.call("stored", "put", key, STORED[key])
    with m.client("N4", call_timeout_s=3.0) as grid, pytest.raises(UnavailableError):
        grid.call("stored", "get", key_at(m, "N2 N1"))  # its owner cannot be reached
    m.wait_lists({m.everybody: "N1 N2 N3 N4"})
    assert m.said_by("N1").view.version == version
    assert m.removed_by("N1") == []

    m.heal()
    wait_for(lambda: not any(suspicions(m).values()), "no suspicion any more", SETTLE_S, m.seen)
    with m.client("N4") as grid:
        grid.call("stored", "put_all", STORED)
    m.check_filled("N2")
    m.judge()


@pytest.mark.rows("PD-07", "PD-08")
@pytest.mark.parametrize("backup_count", [1, 0])
def test_fig_5_the_master_keeps_the_larger_part_and_loses_nothing(machines: Start, backup_count: int) -> None:
    """N1-N2 N1-N3 N1-N4 N3-N4 | N2-N3 N2-N4 => {N1, N3, N4}, also without backups: they are moved before N2 goes."""
    m = machines(4, backup_count=backup_count)
    m.fill()
    m.cut("N2", "N3 N4")
    m.wait_lists({"N1 N3 N4": "N1 N3 N4"})
    assert m.removed_by("N1") == ["N2"]
    decided = m.events("N1", "ResolutionDecided")[-1]
    assert (m.named(decided["kept"]), m.named(decided["removed"])) == ("N1 N3 N4", "N2")
    reports = {m.named(report[:1]): sorted(m.named(report[1:]).split()) for report in decided["reports"]}
    assert reports == {"N2": ["N3", "N4"], "N3": ["N2"], "N4": ["N2"]}
    m.wait_whole("N1 N3 N4")
    for at in ("N1", "N4"):
        m.check_filled(at)
    one_cluster_again(m, "N1 N3 N4 N2")


@pytest.mark.rows("PD-28")
def test_a_one_way_cut_between_slaves_is_as_good_as_both(machines: Start) -> None:
    """N2 -> N3 is cut, N3 -> N2 is not: one of them goes, and comes back."""
    m = machines(4)
    m.fill()
    m.cut_one_way("N2", "N3")

    def three() -> str | None:
        seen = m.list_of("N1")
        return seen if seen in ("N1 N2 N4", "N1 N3 N4") else None

    kept = wait_for(three, "one goes", SETTLE_S, m.seen)
    m.wait_lists({kept: kept})
    m.wait_whole(kept)
    m.check_filled("N4")
    one_cluster_again(m, f"{kept} {'N3' if 'N2' in kept else 'N2'}")
