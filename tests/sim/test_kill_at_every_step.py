"""Each kind of migration, with each of those who take part killed, cut off or stopped at each of its steps.

Not drawn but gone through: one history for each combination. Members come and go in it, so that the kind is ordered
again and again; the fault waits for the first, and for the message. All checkers of the simulator judge; and as each
partition has more replicas than members crash, nothing that was acknowledged may be missing.
"""

from __future__ import annotations

import pytest

from phalanx.sim.options import (
    DESTINATION,
    MASTER,
    OTHER_REPLICA,
    OWNER,
    SOURCE,
    Fault,
    FaultKind,
)
from phalanx.sim.run import Result, run
from plots import PLOTS, options

STEPS: dict[int, tuple[tuple[str, bool], ...]] = {
    OWNER: (
        ("MigrationOrder", False), ("CopyStart", True), ("CopyChunk", True), ("CopyAck", False), ("ReplicatePut", True),
        ("ReplicateAck", False), ("MigrationReady", True), ("TableChanges", False), ("TableAck", True),
    ),
    SOURCE: (
        ("", False), ("ReplicatePut", False), ("TableChanges", False), ("TableAck", True), ("ReplicateAck", True),
    ),
    DESTINATION: (
        ("CopyStart", False), ("CopyChunk", False), ("CopyAck", True), ("ReplicatePut", False), ("ReplicateAck", True),
        ("MigrationCommit", False), ("MigrationAnswer", True), ("Probe", True), ("ProbeAnswer", False),
        ("TableChanges", False),
    ),
    OTHER_REPLICA: (
        ("ReplicatePut", False), ("ReplicateAck", True), ("Probe", False), ("ProbeAnswer", True),
        ("TableChanges", False),
    ),
    MASTER: (
        ("", False), ("MigrationOrder", True), ("MigrationReady", False), ("MigrationCommit", True), ("MigrationAnswer", False),
        ("TableChanges", True), ("TableAck", False),
    ),
}  # fmt: skip
"""Who takes part to the messages at which it is hurt, and whether it is one that it sends; "": at the order."""

ALL_STEPS = [(role, what, is_sent) for role, steps in STEPS.items() for what, is_sent in steps]


def hurt(kind: str, how: FaultKind, role: int, what: str, *, is_sent: bool, nth: int = 1) -> Result:
    if not what:
        how = {FaultKind.CRASH_ON: FaultKind.CRASH, FaultKind.PAUSE_ON: FaultKind.PAUSE}.get(how, how)
    elif how is FaultKind.CRASH_ON and is_sent:
        how = FaultKind.CRASH_SENDING
    lasts_ms = {FaultKind.CUT_ON: 40, FaultKind.PAUSE_ON: 400}.get(how, 500)
    return run(
        options(
            kind, Fault(850, how, role, lasts_ms=lasts_ms, what=what, nth=nth, during=kind, is_apart=role != MASTER)
        )
    )


@pytest.mark.parametrize("kind", PLOTS)
def test_the_plot_leads_to_migrations_of_the_kind(kind: str) -> None:
    result = run(options(kind, Fault(850, FaultKind.CLOCK_STEP, DESTINATION, during=kind)))
    assert not result.violations
    assert result.faults["clock-step"] == 1


NEVER_SENT = {
    "shift-up": {(OWNER, "ReplicatePut"), (SOURCE, "ReplicateAck")},
    "shift-up-down": {(DESTINATION, "CopyStart"), *((OTHER_REPLICA, what) for what, _ in STEPS[OTHER_REPLICA])},
}
"""Messages that do not come up before the victim has left; all others do. Who changes places with the owner holds a
replica already, and does so where they are the only ones."""


@pytest.mark.rows("DL-16", "DL-21", "DL-22", "DL-28", "DL-29", "DL-31")
@pytest.mark.parametrize("how", [FaultKind.CRASH_ON, FaultKind.CUT_ON, FaultKind.PAUSE_ON])
@pytest.mark.parametrize("kind", PLOTS)
def test_whoever_is_hurt_at_whichever_step_nothing_is_lost_or_done_twice(kind: str, how: FaultKind) -> None:
    missed = set()
    for role, what, is_sent in ALL_STEPS:
        result = hurt(kind, how, role, what, is_sent=is_sent)
        told = [f"{v.at_ms} ms: {v.what}: {v.story}" for v in result.violations]
        assert not told, f"{how} at {what} of {role} in {kind}: " + "\n".join(told)
        assert not result.counts["excused losses"]
        assert not result.counts.get("lost partitions")
        if what and not result.counts.get("points reached"):
            missed.add((role, what))
    assert missed <= NEVER_SENT.get(kind, set())
