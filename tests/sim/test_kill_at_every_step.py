"""Each kind of migration, with each of those who take part killed, cut off or stopped at each of its steps.

Not drawn but gone through: one history for each combination, and for each with a member that joins or leaves in the
middle. Members come and go besides, so that the kind is ordered again and again; the faults wait for the first, and the
victim for its message. All checkers of the simulator judge; and as each partition has more replicas than members crash,
nothing that was acknowledged may be missing.
"""

from __future__ import annotations

import msgspec
import pytest

from phalanx_proof.sim.fault import DESTINATION, MASTER, OTHER_REPLICA, OWNER, SOURCE, Fault, FaultKind
from phalanx_proof.sim.result import Result
from phalanx_proof.sim.run import run
from support.plots import PLOTS, options, spare

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


AMID = ("", "another joins", "the owner leaves")
"""What else happens to the same migration as soon as it is ordered."""


FOR_A_MOMENT_MS = 40
"""A cut that is over before anybody takes the other for dead: the grace for refused connections is longer."""

FOR_LONG_MS = 250
"""A cut after which both sides go on alone, and merge."""


def hurt(
    kind: str, how: FaultKind, role: int, what: str, *, is_sent: bool, amid: str = "", is_long: bool = False
) -> list[Result]:
    """Histories with other writes, up to the first in which the victim met its message. `is_long`: a cut makes two sides."""
    if not what:
        how = {FaultKind.CRASH_ON: FaultKind.CRASH, FaultKind.PAUSE_ON: FaultKind.PAUSE}.get(how, how)
    elif how is FaultKind.CRASH_ON and is_sent:
        how = FaultKind.CRASH_SENDING
    cut_ms = FOR_LONG_MS if is_long else FOR_A_MOMENT_MS
    lasts_ms = {FaultKind.CUT_ON: cut_ms, FaultKind.PAUSE_ON: 400}.get(how, 500)
    victim = Fault(850, how, role, lasts_ms=lasts_ms, what=what, nth=1, during=kind, is_apart=role != MASTER)
    faults = [victim]
    if amid == "another joins":
        faults.insert(0, Fault(850, FaultKind.JOIN, spare(kind), during=kind))
    elif amid == "the owner leaves":
        faults.insert(0, Fault(850, FaultKind.LEAVE, OWNER, lasts_ms=500, during=kind))
    results: list[Result] = []
    for seed in PLOTS[kind].seeds:
        # Where there are two sides, what each was told is judged against what they have merged into.
        results.append(run(msgspec.structs.replace(options(kind, *faults, seed=seed), merges_sides=is_long)))
        if was_reached(results[-1], what, amid):
            break
    return results


def was_reached(result: Result, what: str, amid: str) -> bool:
    """Whether the migration was ordered, both faults were about it, and the victim met its message."""
    at_migrations = result.counts["faults at migrations"]
    return at_migrations == 1 + bool(amid) and (not what or result.counts.get("points reached") == 1)


@pytest.mark.parametrize("kind", PLOTS)
def test_the_plot_leads_to_migrations_of_the_kind(kind: str) -> None:
    result = run(options(kind, Fault(850, FaultKind.CLOCK_STEP, DESTINATION, during=kind)))
    assert not result.violations
    assert result.faults["clock-step"] == 1


IN_BRIEF = "move-owner"
"""The kind that `./run test` plays, with crashes only: its destinations are copied to as well. All else takes minutes."""


@pytest.mark.rows("DL-16", "DL-21", "DL-22", "DL-28", "DL-29", "DL-31")
@pytest.mark.parametrize(
    ("kind", "how", "amid"),
    [
        pytest.param(
            kind,
            how,
            amid,
            marks=[] if (kind == IN_BRIEF and how is FaultKind.CRASH_ON and not amid) else [pytest.mark.long],
        )
        for kind in PLOTS
        for how in (FaultKind.CRASH_ON, FaultKind.CUT_ON, FaultKind.PAUSE_ON)
        for amid in AMID
    ],
)
def test_whoever_is_hurt_at_whichever_step_nothing_is_lost_or_done_twice(kind: str, how: FaultKind, amid: str) -> None:
    missed = set()
    for role, what, is_sent in ALL_STEPS:
        results = hurt(kind, how, role, what, is_sent=is_sent, amid=amid)
        for result in results:
            told = [f"{v.at_ms} ms: {v.what}: {v.story}" for v in result.violations]
            assert not told, f"{how} at {what} of {role} in {kind}, {amid}: " + "\n".join(told)
            assert not result.counts["excused losses"]
            assert not result.counts.get("lost partitions")
        if not was_reached(results[-1], what, amid):
            missed.add((role, what))
    # None is out of reach: each was hurt at each message, with one of the seeds.
    assert not missed


@pytest.mark.long
@pytest.mark.rows("EL-60", "DL-59")
@pytest.mark.parametrize("kind", PLOTS)
@pytest.mark.parametrize("amid", AMID)
def test_whoever_is_cut_off_at_whichever_step_the_sides_merge_and_lose_nothing(kind: str, amid: str) -> None:
    missed, divided = set(), 0
    for role, what, is_sent in ALL_STEPS:
        if not what:
            continue
        results = hurt(kind, FaultKind.CUT_ON, role, what, is_sent=is_sent, amid=amid, is_long=True)
        for result in results:
            told = [f"{v.at_ms} ms: {v.what}: {v.story}" for v in result.violations]
            assert not told, f"cut at {what} of {role} in {kind}, {amid}: " + "\n".join(told)
            divided += result.counts.get("removed while running", 0) > 0
        if not was_reached(results[-1], what, amid):
            missed.add((role, what))
    assert not missed
    assert divided, "no cut made two sides"
