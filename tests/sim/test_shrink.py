"""A history that violates something is made smaller: fewer faults, hosts and calls, and it violates the same."""

from pathlib import Path

import msgspec
import pytest

from phalanx_proof.sim.checkers.findings import Violation
from phalanx_proof.sim.code_digest import code_digest
from phalanx_proof.sim.fault import MASTER, Fault, FaultKind
from phalanx_proof.sim.options import HistoryOptions, Profile
from phalanx_proof.sim.planted_bug import load_planted_bug
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.run import run
from phalanx_proof.sim.schedule import Schedule, read_schedule, write_schedule
from phalanx_proof.sim.shrink import shrink, signature, without_host
from phalanx_proof.sim.workload.calls import LOCKS
from planted_bugs import CANARIES


def first_violated(profile: Profile, canary: str, first_seed: int = 0) -> HistoryOptions:
    return next(
        options
        for seed in range(first_seed, 40)
        if run(options := draw_options(seed, profile), CANARIES[canary]).violations
    )  # fmt: skip


@pytest.mark.parametrize(
    ("profile", "canary", "first_seed", "most_faults", "most_calls"),
    [
        pytest.param(Profile.FAILOVER, "drop-replica-early", 0, 1, 5, marks=pytest.mark.long),
        # A history in which the bug needs a crash at one moment among many calls keeps those (seed 0: 67 of them).
        pytest.param(
            Profile.FAILOVER, "acknowledge-early", 6, 2, 12, marks=[pytest.mark.long, pytest.mark.timeout(400)]
        ),
        (Profile.MIGRATIONS, "serve-while-sealed", 0, 3, 5),
    ],
)
def test_what_is_left_is_a_handful_of_faults_and_calls(
    profile: Profile, canary: str, first_seed: int, most_faults: int, most_calls: int
) -> None:
    options = first_violated(profile, canary, first_seed)
    before = run(options, CANARIES[canary])
    smallest = shrink(options, CANARIES[canary])
    after = run(smallest, CANARIES[canary])
    assert signature(before.violations[0]) in {signature(each) for each in after.violations}
    assert len(smallest.faults) <= most_faults < len(options.faults)
    calls = sum(last - first + 1 for first, last in smallest.kept_calls or ())
    assert smallest.kept_calls is not None or not smallest.operations_per_second
    assert calls <= most_calls
    assert after.inputs < before.inputs / 2
    assert not run(smallest).violations, "it is the planted bug that is left, no other"


def test_the_same_history_shrinks_to_the_same_one() -> None:
    options = first_violated(Profile.MEMBERSHIP, "claim-without-asking")
    planted = CANARIES["claim-without-asking"]
    assert shrink(options, planted) == shrink(options, planted)


def test_without_a_host_those_behind_it_move_up() -> None:
    faults = (
        Fault(1, FaultKind.CUT, 0, 2),
        Fault(2, FaultKind.CRASH, 1),
        Fault(3, FaultKind.CRASH, MASTER),
        Fault(4, FaultKind.CUT_GROUP, 0, nth=0b1101),
        Fault(5, FaultKind.PAUSE, 3),
    )
    drawn = draw_options(4, Profile.QUIET)
    options = msgspec.structs.replace(
        drawn, hosts=4, members=3, start_at_ms=(10, 20, 30), clock_ppm=(1, 2, 3, 4), wall_ms=(), faults=faults
    )
    smaller = without_host(options, 1)
    assert (smaller.hosts, smaller.members, smaller.start_at_ms, smaller.clock_ppm) == (3, 2, (10, 30), (1, 3, 4))
    assert smaller.faults == (
        Fault(1, FaultKind.CUT, 0, 1),
        Fault(3, FaultKind.CRASH, MASTER),
        Fault(4, FaultKind.CUT_GROUP, 0, nth=0b111),
        Fault(5, FaultKind.PAUSE, 2),
    )
    assert without_host(options, 3).start_at_ms == (10, 20, 30), "the last one joined later"


def test_two_errors_of_members_are_two_violations() -> None:
    told = [
        Violation(5, "a member never fails", "10.0.0.1:5701/aa: KeyError: 17\nTraceback"),
        Violation(9, "a member never fails", "10.0.0.2:5701/bb: KeyError: 23\nTraceback"),
        Violation(
            9, "a member never fails", "10.0.0.2:5701/bb: InvariantViolation: only a running process ends (host=3)\n"
        ),
        Violation(
            9, "a member never fails", "10.0.0.2:5701/bb: InvariantViolation: a message survives encoding (m=3)\n"
        ),
    ]
    assert len({signature(each) for each in told}) == 3
    assert signature(told[0]) == signature(told[1])


def test_a_call_that_is_left_out_is_not_made_and_the_others_are() -> None:
    options = draw_options(3, Profile.QUIET)
    all_of_them = run(options)
    reads_at_rest = options.registers + 2 * options.counters + LOCKS
    none = run(msgspec.structs.replace(options, kept_calls=()))
    few = run(msgspec.structs.replace(options, kept_calls=((1, 2), (5, 5))))
    assert sum(none.outcomes.values()) == reads_at_rest
    assert 3 <= few.operations - reads_at_rest <= 6 < all_of_them.operations - reads_at_rest
    everything = msgspec.structs.replace(options, kept_calls=((1, all_of_them.operations),))
    assert run(everything).digest == all_of_them.digest


def test_a_file_repeats_the_history(tmp_path: Path) -> None:
    planted = CANARIES["claim-without-asking"]
    options = shrink(draw_options(1, Profile.MEMBERSHIP), planted)
    result = run(options, planted)
    what = result.violations[0].what
    path = tmp_path / "found.json"
    write_schedule(
        path,
        Schedule(
            code=code_digest(planted.name), canary=planted.name, violation=what, digest=result.digest, options=options
        ),
    )
    again = read_schedule(path, planted.name)
    assert again.options == options
    assert run(again.options, load_planted_bug(again.canary)).digest == again.digest
