"""The checker of versions: what a restart uses again is found, unless nobody can have heard of it (DU-26)."""

from __future__ import annotations

import pytest

from phalanx.common.table import PartitionTable, TableRow, build_table
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.wire.disk_records import ClusterLeft
from phalanx.wire.restart_events import ClusterRestarted
from phalanx_proof.sim.checkers.checker import ObservedEvent
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.checkers.version_checker import VersionChecker
from support.harness import lone_id

A, B = lone_id("A"), lone_id("B")


def table(version: int, *, dormant: bool = False) -> PartitionTable:
    row = TableRow((), version, 0, (A,)) if dormant else TableRow((A,), version, 0)
    return build_table([(A,)], [1]).with_rows({0: row})


def is_found(checker: VersionChecker, findings: Findings, restarted: PartitionTable) -> bool:
    """Say whether the first table of a restart uses a version again."""
    checker.on_event(ObservedEvent(B, ClusterRestarted(restarted.version, (B,), ()), 1))
    checker.on_table(B, restarted, 1)
    return bool(findings.violations)


@pytest.mark.parametrize("dormant", [False, True])
@pytest.mark.parametrize("version", [4, 5, 6])
def test_a_version_that_anybody_has_installed_is_used(version: int, dormant: bool) -> None:
    findings = Findings()
    checker = VersionChecker(findings)
    checker.on_table(A, table(5), 0)
    checker.on_table(A, table(3), 0)
    assert is_found(checker, findings, table(version, dormant=dormant)) is (version <= 5)


@pytest.mark.parametrize(("syncs", "ends", "used"), [(False, False, False), (True, False, True), (False, True, True)])
def test_a_version_that_its_master_has_not_synced_is_not_used(syncs: bool, ends: bool, used: bool) -> None:
    """Where the disk has failed nothing waits for it."""
    findings, log = Findings(), ReplicaLog()
    checker = VersionChecker(findings)
    log.add(ClusterLeft())
    checker.on_table(A, table(5), 0, log)
    if syncs:
        log.note_synced(1)
    if ends:
        log.end()
    assert is_found(checker, findings, table(5)) is used


def test_a_version_that_is_told_is_used() -> None:
    findings, log = Findings(), ReplicaLog()
    checker = VersionChecker(findings)
    log.add(ClusterLeft())
    checker.on_table(A, table(5), 0, log)
    checker.on_table(B, table(5), 0)
    assert is_found(checker, findings, table(5))
