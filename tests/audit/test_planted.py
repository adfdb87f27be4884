"""The audit finds what was planted in simulated histories, in these and in no others.

All of them are judged in one audit: each is a history of its own, and nothing is compared between histories.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from phalanx.audit.run import audit
from phalanx.audit.schema import TraceRow
from phalanx.audit.verdicts import Report, Status, Verdict
from phalanx.sim.options import Profile
from phalanx.wire.events import (
    ClaimAnswered,
    ClaimStarted,
    MemberRemoved,
    MemberSuspected,
    MergeEnded,
    MigrationCommitted,
    MigrationRolledBack,
    MigrationStarted,
    PartitionLost,
    PartitionSealed,
    ProtectionChanged,
    StaleMessageIgnored,
    SuspicionRemoved,
    TableInstalled,
    WokeUp,
)
from traces import Plant, Planted, find_seed, has_crashes, has_sides, write_parquet

pytestmark = pytest.mark.timeout(900)

STILL_THERE = StaleMessageIgnored("somebody", "something", "planted")
NO_HEARTBEAT = "no heartbeat for 5000 ms"


def two_masters(of: Planted) -> list[TraceRow]:
    """The second member makes itself the master beside the first one, which stays in its list."""
    a, b, *others = of.members
    of.install(b, of.view.view_version + 1, [b, a, *others])
    return of.rows()


def unasked_master(of: Planted) -> list[TraceRow]:
    """The second member claims, and has those in its list who did not agree."""
    _, b, c, *_ = of.members
    of.add(b, MemberSuspected(of.master, NO_HEARTBEAT, "CS-33 silence"))
    of.add(b, ClaimStarted(1, of.view.view_version, (of.master,), "CS-53"))
    of.add(c, ClaimAnswered(b, False, (of.master,), "CS-58"))
    of.install(b, of.view.view_version + 1, [b, c])
    return of.rows()


def version_back(of: Planted) -> list[TraceRow]:
    """A member installs the list before once more, and then the newest again."""
    last = of.members[-1]
    of.install(of.master, of.view.view_version + 1, of.members)
    of.install(last, of.view.view_version + 1, of.members)
    of.install(last, of.view.view_version, of.members)
    return of.rows()


def table_back(of: Planted) -> list[TraceRow]:
    of.add(of.members[-1], TableInstalled(1, 1, 1))
    return of.rows()


def without_itself(of: Planted) -> list[TraceRow]:
    of.install(of.members[-1], of.view.view_version + 1, of.members[:-1])
    return of.rows()


def two_lists(of: Planted) -> list[TraceRow]:
    """One version of one maker, and two members have different lists of it."""
    version = of.view.view_version + 1
    of.install(of.master, version, of.members)
    of.install(of.members[-1], version, [of.master, of.members[-1]])
    return of.rows()


def never_agreed(of: Planted) -> list[TraceRow]:
    """The master's last list never comes to the others, though all still run a minute later."""
    of.install(of.master, of.view.view_version + 1, of.members)
    of.wait()
    for member in of.members:
        of.add(member, STILL_THERE)
    return of.rows()


def two_results(of: Planted) -> list[TraceRow]:
    """The master commits a migration, and rolls it back."""
    order, backup = _order(of), of.holders(0)[1]
    of.add(of.master, MigrationStarted(**order, owner=of.master))
    of.add(of.master, MigrationCommitted(**order, took_ms=10, replicas=(backup,)))
    of.add(of.master, MigrationRolledBack(**order, reason="planted"))
    return of.rows()


def fewer_replicas(of: Planted) -> list[TraceRow]:
    """A migration leaves partition 0 with one replica, where three members could hold more."""
    order, backup = _order(of), of.holders(0)[1]
    of.add(of.master, MigrationStarted(**order, owner=of.master))
    of.add(of.master, MigrationCommitted(**order, took_ms=10, replicas=(backup,)))
    return of.rows()


def lost(of: Planted) -> list[TraceRow]:
    of.add(of.master, PartitionLost(3, (of.members[1],), 7, 900, replicas_now=(of.master,)))
    return of.rows()


def brought_back(of: Planted) -> list[TraceRow]:
    """The same, but the one that held it comes back and merges what it had."""
    of.add(of.master, PartitionLost(3, (of.members[1],), 7, 900, replicas_now=(of.master, of.members[2])))
    of.wait(5_000)
    of.add(of.members[1], MergeEnded(of.members[1], 10, 10, 10, 0, 50))
    return of.rows()


def sealed_for_ever(of: Planted) -> list[TraceRow]:
    of.add(of.members[1], PartitionSealed(0, 1000, of.members[2]))
    of.wait()
    of.add(of.master, STILL_THERE)
    return of.rows()


def refused_for_ever(of: Planted) -> list[TraceRow]:
    of.add(of.members[1], ProtectionChanged("gold", True, 5, False, False, True, 3, 9, "planted"))
    of.wait()
    of.add(of.master, STILL_THERE)
    return of.rows()


def refused_for_a_while(of: Planted) -> list[TraceRow]:
    of.add(of.members[1], ProtectionChanged("gold", True, 5, False, False, True, 3, 9, "planted"))
    of.wait()
    of.add(of.members[1], ProtectionChanged("gold", False, 5, False, False, True, 3, 9, ""))
    return of.rows()


def live_member_removed(of: Planted) -> list[TraceRow]:
    """The master removes the last member, which runs, could be heard, and suspects nobody."""
    gone = of.members[-1]
    of.add(of.master, MemberSuspected(gone, NO_HEARTBEAT, "CS-33 silence"))
    of.add(of.master, MemberRemoved(gone, of.view.view_version + 1, NO_HEARTBEAT, "CS-35"))
    for member in of.members[:-1]:
        of.install(member, of.view.view_version + 1, of.members[:-1])
    of.add(gone, STILL_THERE)
    return of.rows()


def hung_member_removed(of: Planted) -> list[TraceRow]:
    """The same, but the member says that it did not run."""
    gone = of.members[-1]
    of.wait(8_000)
    of.add(of.master, MemberSuspected(gone, NO_HEARTBEAT, "CS-33 silence"))
    of.add(of.master, MemberRemoved(gone, of.view.view_version + 1, NO_HEARTBEAT, "CS-35"))
    for member in of.members[:-1]:
        of.install(member, of.view.view_version + 1, of.members[:-1])
    of.add(gone, WokeUp(7_000, "planted"))
    return of.rows()


def crashed_member_removed(of: Planted) -> list[TraceRow]:
    """The same, and the one who ran it says when it crashed: two seconds before."""
    gone = of.members[-1]
    of.process(gone, "crashed")
    of.wait(2_000)
    of.add(of.master, MemberSuspected(gone, NO_HEARTBEAT, "CS-33 silence"))
    of.add(of.master, MemberRemoved(gone, of.view.view_version + 1, NO_HEARTBEAT, "CS-35"))
    for member in of.members[:-1]:
        of.install(member, of.view.view_version + 1, of.members[:-1])
    return of.rows()


def false_suspicion(of: Planted) -> list[TraceRow]:
    """Taken back a moment later: a figure, and nothing broken."""
    of.add(of.members[1], MemberSuspected(of.members[2], NO_HEARTBEAT, "CS-33 silence"))
    of.add(of.members[2], STILL_THERE)
    of.add(of.members[1], SuspicionRemoved(of.members[2], "CS-52"))
    return of.rows()


def _order(of: Planted) -> dict[str, Any]:
    """Of a migration of partition 0 that is not in the history: its owner gives it to its backup."""
    owner, backup = of.holders(0)[:2]
    return {
        "partition": 0, "kind": "shift-up", "source": owner, "source_current_index": 0, "source_new_index": -1,
        "destination": backup, "destination_current_index": 1, "destination_new_index": 0,
        "partition_version": 1000, "table_version": 5000,
    }  # fmt: skip


BROKEN: dict[Plant, set[str]] = {
    two_masters: {"masters"},
    unasked_master: {"masters"},
    version_back: {"versions", "view_order"},
    table_back: {"versions"},
    without_itself: {"view_integrity"},
    two_lists: {"one_list"},
    never_agreed: {"view_agreement"},
    two_results: {"one_result", "replicas"},
    fewer_replicas: {"replicas"},
    lost: {"no_loss"},
    sealed_for_ever: {"writes"},
    refused_for_ever: {"writes"},
    live_member_removed: {"detector"},
    brought_back: set(),
    refused_for_a_while: set(),
    hung_member_removed: set(),
    crashed_member_removed: set(),
    false_suspicion: set(),
}
CLEAN = {
    "calm": (Profile.QUIET, lambda result, rows: not result.counts.get("lost partitions")),
    "crashes and migrations": (Profile.MIGRATIONS, has_crashes),
    "a split and a merge": (Profile.LEASE, has_sides),
    "views only": (Profile.MEMBERSHIP, lambda result, rows: True),
}


@pytest.fixture(scope="module")
def report(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Of all histories, with the charts of one."""
    folder = tmp_path_factory.mktemp("traces")
    rows = [row for plant in BROKEN for row in plant(Planted(plant.__name__))]
    for name, (profile, wanted) in CLEAN.items():
        rows += Planted(name, find_seed(profile, wanted), profile).rows()
    unread = Planted("a log is missing")
    rows += unread.rows(without=unread.members[-1])
    write_parquet(rows, folder / "traces.parquet")
    return audit(spark, str(folder), history="a split and a merge")


def verdict(report: Report, name: str) -> Verdict:
    return next(each for each in report.verdicts if each.property == name)


def broken_in(report: Report, history: str) -> set[str]:
    return {each.property for each in report.verdicts for found in each.findings if found.history == history}


@pytest.mark.rows("CS-21", "CS-22", "CS-24")
@pytest.mark.parametrize("plant", BROKEN, ids=lambda plant: plant.__name__)
def test_what_was_planted_is_found_and_nothing_else(report: Report, plant: Plant) -> None:
    assert broken_in(report, plant.__name__) == BROKEN[plant]


@pytest.mark.parametrize("history", CLEAN)
def test_a_clean_history_passes(report: Report, history: str) -> None:
    assert broken_in(report, history) == set()


def test_every_finding_is_told(report: Report) -> None:
    assert not report.ok
    for each in report.verdicts:
        assert len(each.findings) == each.found, f"{each.property}: more than are told, so that one could hide"
        assert (each.status is Status.BROKEN) == bool(each.found)


def test_evidence_is_the_lines_that_show_it_and_no_others(report: Report) -> None:
    planted = Planted("version_back")
    version_back(planted)
    rows = planted.rows()
    found = next(each for each in verdict(report, "versions").findings if each.history == "version_back")
    assert [(line.line, line.member) for line in found.lines] == [(row.line, row.member) for row in rows[-2:]]

    circle = next(each for each in verdict(report, "view_order").findings if each.history == "version_back")
    assert {line.member for line in circle.lines} <= set(planted.members)
    assert circle.lines[-1].told == circle.lines[0].told, "it ends with the list that it begins with"
    assert circle.lines[1].told != circle.lines[0].told


def test_a_missing_log_is_named_where_it_matters(report: Report) -> None:
    missing = Planted("a log is missing").members[-1]
    for name in ("view_order", "view_integrity", "versions"):
        told = verdict(report, name).missing
        assert told == (f"a log is missing: the log of {missing}, which is in lists of others",)


def test_detection_is_measured_from_the_end(report: Report) -> None:
    kinds = {(row["did"], row["kind"]): row for row in verdict(report, "detector").figures["kinds"]}
    assert ("suspected", "false") in kinds
    planted = [row for row in report.charts["suspicions"] if row["kind"] == "false"]
    assert planted == [], "the split's suspicions are right: both sides heard nothing"
    assert kinds["removed", "crashed"]["max_ms"] >= 2_000
    assert kinds["removed", "hung"]["count"] == 1


def test_lost_data_that_came_back_is_a_window(report: Report) -> None:
    figures = verdict(report, "no_loss").figures
    assert figures["came_back"] >= 1
    assert figures["longest_ms"] >= 5_000


def test_charts_tell_the_split(report: Report) -> None:
    charts = report.charts
    assert charts["history"] == "a split and a merge"
    rows = charts["members"]
    together = [
        (a["master"], b["master"])
        for a in rows
        for b in rows
        if a["member"] < b["member"]
        and a["master"] != b["master"]
        and a["since"] < b["until"]
        and b["since"] < a["until"]
    ]
    assert together, "at some time members followed different masters"
    assert {row["replicas"] for row in charts["replicas"]} >= {1, 2}
    assert all(row["since"] <= row["until"] for row in charts["migrations"])
