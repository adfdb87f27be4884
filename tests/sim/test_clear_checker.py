"""Whether a replica was cleared behind the back of an owner that had crashed, by what masters record (PX-34)."""

import pytest

from phalanx.common.ids import MemberId
from phalanx.common.view import MembersView
from phalanx.wire.table_events import MigrationCommitted, MigrationStarted
from phalanx_proof.sim.checkers.checker import ObservedEvent
from phalanx_proof.sim.checkers.clear_checker import ClearChecker
from phalanx_proof.sim.checkers.findings import Findings

MASTER, OWNER, LOSER = (MemberId(name) for name in ("M", "O", "L"))
VIEW = MembersView(3, MASTER, (MASTER, OWNER, LOSER))


@pytest.mark.rows("PX-34")
@pytest.mark.parametrize(
    ("ended_at", "found"),
    [(None, False), (9, True), (10, False), (15, False), (30, False)],
    ids=["never", "before", "at once", "behind its answer", "later"],
)
def test_an_owner_that_had_ended_before_it_was_asked_has_answered_nothing(ended_at: int | None, found: bool) -> None:
    findings = Findings()
    checker = ClearChecker(findings)
    facts = 3, "clear", LOSER, 1, -1, None, -1, -1, 4, 7
    for now in range(40):
        if now == ended_at:
            checker.on_process_ended(OWNER, "crashed", now)
        if now == 10:
            checker.on_event(ObservedEvent(MASTER, MigrationStarted(*facts, OWNER), now, VIEW))
        if now == 20:
            checker.on_event(ObservedEvent(MASTER, MigrationCommitted(*facts, 10, (OWNER,)), now, VIEW))
    assert checker.checked == 1
    assert [each.what for each in findings.violations] == ["a replica is cleared while its owner lives"] * found


def test_what_gives_somebody_a_replica_is_not_looked_at() -> None:
    checker = ClearChecker(Findings())
    checker.on_event(
        ObservedEvent(MASTER, MigrationCommitted(3, "move", LOSER, 1, -1, OWNER, -1, 1, 4, 7, 10, (OWNER,)), 20, VIEW)
    )
    assert checker.checked == 0
