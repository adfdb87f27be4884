"""The audit finds what was planted in simulated histories, in these and in no others.

All of them are judged in one audit, for an audit of anything takes long: each is a history of its own, and nothing is
compared between histories. Among them are some whose logs have gaps, one as files of a member that was killed, and what a search kept.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from phalanx.cli.main import app
from phalanx.common.ids import MemberId
from phalanx.reports.trace_rows import TraceRow
from phalanx.wire.join_events import LastMembersLeave
from phalanx.wire.log_events import EventsLost
from phalanx.wire.merge_events import MergeEnded
from phalanx.wire.suspicion_events import (
    ClaimAnswered,
    ClaimStarted,
    MemberSuspected,
    StaleMessageIgnored,
    SuspicionRemoved,
    WokeUp,
)
from phalanx.wire.table_events import (
    MigrationCommitted,
    MigrationRolledBack,
    MigrationsPlanned,
    MigrationStarted,
    PartitionLost,
    PartitionSealed,
    ProtectionChanged,
    TableInstalled,
)
from phalanx.wire.view_events import MemberRemoved
from phalanx_proof.sim.options import Profile
from phalanx_spark.audit import findings, run
from phalanx_spark.audit.verdicts import PROPERTIES, AuditVerdict, Report, Status
from support.traces import Plant, Planted, find_seed, has_crashes, has_sides, write_logs, write_parquet

pytestmark = pytest.mark.timeout(900)

STILL_THERE = StaleMessageIgnored(MemberId("somebody"), "something", "planted")
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


def fewer_replicas_wanted(of: Planted) -> list[TraceRow]:
    """As `fewer_replicas`, after an operator has set the number of backups to 0."""
    of.add(of.master, MigrationsPlanned(900, 9, 9, 0, "the number of backups changed", wanted_replicas=1))
    return fewer_replicas(of)


def lost(of: Planted) -> list[TraceRow]:
    of.add(of.master, PartitionLost(3, (of.members[1],), 7, 900, replicas_now=(of.master,)))
    return of.rows()


def ended_with_the_last_members(of: Planted) -> list[TraceRow]:
    """All members were told to leave."""
    of.add(of.master, LastMembersLeave(tuple(of.members), 542))
    return lost(of)


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


def unexplained_master(of: Planted) -> list[TraceRow]:
    """The second member makes itself the master; nothing tells of a claim."""
    _, b, c, *_ = of.members
    of.install(b, of.view.view_version + 1, [b, c])
    return of.rows()


def master_within_a_gap(of: Planted) -> list[TraceRow]:
    """The same, but its log lacks lines of the time, which may tell of the claim."""
    unexplained_master(of)
    return _with_gap(of, 1_000)


def master_before_a_gap(of: Planted) -> list[TraceRow]:
    """The same, but the missing lines are of a later time."""
    unexplained_master(of)
    of.wait()
    return _with_gap(of, 1_000)


def proved_despite_a_gap(of: Planted) -> list[TraceRow]:
    """The second member installs a list without itself: no missing line makes that right."""
    a, b, *others = of.members
    of.install(b, of.view.view_version + 1, [a, *others], a)
    return _with_gap(of, 1_000)


def _with_gap(of: Planted, ms: int) -> list[TraceRow]:
    """The second member says what is missing in its log."""
    of.add(of.members[1], EventsLost(7, ms, "No space left on device"))
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
    fewer_replicas_wanted: set(),
    lost: {"no_loss"},
    sealed_for_ever: {"writes"},
    refused_for_ever: {"writes"},
    live_member_removed: {"detector"},
    unexplained_master: {"masters"},
    master_before_a_gap: {"masters", "view_agreement"},
    proved_despite_a_gap: {"view_integrity"},
    master_within_a_gap: set(),
    brought_back: set(),
    ended_with_the_last_members: set(),
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
WITH_GAPS = (master_within_a_gap, master_before_a_gap, proved_despite_a_gap)
LOGS = "phalanx"
"""The history of log files is their cluster."""
MOST_TOLD = 60
"""Findings of one property, and reasons why one cannot be told: in usual reports fewer, of which each has enough."""


class Judged(NamedTuple):
    report: Report
    searched: list[str]
    """The histories that a search with a planted bug kept."""


@pytest.fixture(scope="module")
def judged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """All histories, with the charts of one."""
    folder = tmp_path_factory.mktemp("traces")
    rows = [row for plant in BROKEN for row in plant(Planted(plant.__name__))]
    for name, (profile, wanted) in CLEAN.items():
        rows += Planted(name, find_seed(profile, wanted), profile).rows()
    unread = Planted("a log is missing")
    rows += unread.rows(without=unread.members[-1])
    write_parquet(rows, folder / "traces.parquet")
    _write_torn_logs(folder / "logs")
    searched = _search(folder / "search")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(findings, "MOST_FINDINGS", MOST_TOLD)
        patch.setattr(run, "MOST_FINDINGS", MOST_TOLD)
        return Judged(run.audit(spark, str(folder), history="a split and a merge"), searched)


@pytest.fixture(scope="module")
def report(judged: Judged) -> Report:
    return judged.report


def _write_torn_logs(folder: Path) -> None:
    """As members leave them, one of which was killed in the middle of a line, on a disk that had been full before."""
    write_logs(_with_gap(Planted("as files"), 500), folder)
    log = next(folder.glob("*.jsonl"))
    log.write_bytes(log.read_bytes() + b'{"at": 12, "clus')


def _search(folder: Path) -> list[str]:
    """Keep what fails with a planted bug; the names of these histories."""
    planted = "tests.planted_bugs:claim-without-asking"
    search = ("simulate", "--seeds", "2:4", "--profile", "membership", "--canary", planted)
    found = CliRunner().invoke(app, [*search, "--out", str(folder), "--shrinks", "0", "--json"])
    assert found.exit_code == 1, found.output
    failing = json.loads(found.stdout.splitlines()[-1])["failing_seeds"]
    assert failing
    return [f"membership/{seed} canary={planted}" for seed in failing]


def verdict(report: Report, name: str) -> AuditVerdict:
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
        told = tuple(each for each in verdict(report, name).missing if each.startswith("a log is missing: "))
        assert told == (f"a log is missing: the log of {missing}, which is in lists of others",)


def test_a_gap_is_named_at_each_property(report: Report) -> None:
    assert len(report.verdicts) == len(PROPERTIES)
    for each in report.verdicts:
        assert each.status in (Status.BROKEN, Status.UNTOLD), each.property
        for history in (*(plant.__name__ for plant in WITH_GAPS), LOGS):
            (told,) = [gap for gap in each.missing if gap.startswith(f"{history}: 7 events of ")]
            assert told.endswith(": No space left on device")


def test_log_files_with_a_gap_and_a_torn_line_are_read(report: Report) -> None:
    assert report.bad_lines == len(report.bad) == 1
    assert report.bad[0].text == '{"at": 12, "clus'
    assert broken_in(report, LOGS) == set()


def test_what_a_search_keeps_of_failing_histories_is_judged(judged: Judged) -> None:
    report, searched = judged
    assert report.histories == len(BROKEN) + len(CLEAN) + 2 + len(searched), "results beside the traces are no events"
    masters = [each for each in verdict(report, "masters").findings if each.history in searched]
    assert any("did not agree with its claim" in each.what for each in masters)


def test_detection_is_measured_from_the_end(report: Report) -> None:
    kinds = {(row["did"], row["kind"]): row for row in verdict(report, "detector").figures["kinds"]}
    assert {("suspected", "false"), ("removed", "crashed"), ("removed", "hung")} <= kinds.keys()
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
