"""The simulator is not blind: a bug planted in the members is found."""

import msgspec
import pytest

from phalanx_proof.sim.fault import DESTINATION, OTHER_REPLICA, Fault, FaultKind
from phalanx_proof.sim.options import HistoryOptions, Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.result import Result, repeat_command
from phalanx_proof.sim.run import run
from planted_bugs import CANARIES
from planted_bugs.cuts import CUT_CANARIES
from planted_bugs.disk import DISK_CANARIES
from planted_bugs.driver import DRIVER_CANARIES
from planted_bugs.eviction import EVICTION_CANARIES
from planted_bugs.folders import DISK_WORLDS
from planted_bugs.idle import IDLE_CANARIES
from planted_bugs.journals import JOURNAL_CANARIES
from planted_bugs.leases import LEASE_CANARIES
from planted_bugs.leaving import LEAVING_CANARIES
from planted_bugs.locks import LOCK_CANARIES
from planted_bugs.losses import LOSS_CANARIES
from planted_bugs.membership import MEMBERSHIP_CANARIES
from planted_bugs.memory import MEMORY_CANARIES
from planted_bugs.migrations import MIGRATION_CANARIES
from planted_bugs.staging import STAGING_CANARIES
from support.planted import assert_found, find
from support.plots import options

SEEDS = range(90)
"""Histories that one canary may survive before it counts as not found."""
MEMBERSHIP_SEEDS = range(600)
"""The same, for bugs of membership: its histories are short."""

FOUND_BY = {
    "acknowledge-early": {
        "no acknowledged write is lost", "reads by the owner are not stale", "a counter is raised once by a call",
    },
    "install-older-views": {"M1 view order", "views only move on", "age order", "a list is the master's"},
    "keep-own-settings": {"all members have one master's settings of maps"},
    "promote-without-table": {"a member never fails", "the cluster becomes whole after healing"},
    "drop-replica-early": {
        "no acknowledged write is lost", "reads by the owner are not stale", "replicas are equal at rest",
        "who is given a replica has it",
    },
    "skip-table-search": {"one owner per partition and version"},
    # A write that is applied again takes the place of one that came between, and that one is lost.
    "forget-outcomes": {
        "a counter is raised once by a call", "no acknowledged write is lost", "an increment counts once",
    },
    "repeat-slices": {"an increment counts once"},
    "give-up-early": {"sensible calls are not refused"},
    "deny-what-was-sent": {"reads return what was written"},
    "resend-nothing": {
        "the cluster becomes whole after healing", "no acknowledged write is lost", "reads by the owner are not stale",
        "a counter is raised once by a call",
    },
    "claim-too-soon": {
        "who claims suspects everybody older", "who agrees suspects everybody older",
        "a claimer's list has those that agreed",
    },
}  # fmt: skip

MIGRATION_FOUND_BY = {
    "commit-without-asking": {"the destination commits first"},
    "clear-before-commit": {"who is given a replica has it"},
    "commit-copy-early": {"who is given a replica has it"},
    "serve-while-sealed": {"one member answers for a partition"},
    "drop-replicas-first": {"a migration leaves no fewer replicas"},
    "clear-unasked": {"a replica is cleared while its owner lives"},
    "give-all-to-leavers": {"who leaves takes nothing along"},
    "become-lite-at-once": {"lite members hold nothing"},
    "forget-the-last-child": {
        "reads by the owner are not stale",
        "no acknowledged write is lost",
        "a counter is raised once by a call",
    },
    "end-divisions-early": {
        "reads by the owner are not stale",
        "no acknowledged write is lost",
        "a counter is raised once by a call",
    },
}

FROM_SEED = {"serve-on-waking": 132, "measure-by-another-alarm": 132, "resend-nothing": 29, "clear-unasked": 80}
"""Where to begin to look: only in one history of some thirty does anything tell of it."""

STAGED: dict[str, HistoryOptions] = {
    # The destination has yet to hear that it is to commit when the master goes on without another replica.
    "repair-undecided": options(
        "move-owner",
        Fault(
            850,
            FaultKind.PAUSE_ON,
            DESTINATION,
            lasts_ms=390,
            what="ReplicateAck",
            nth=2,
            during="move-owner",
            is_apart=True,
        ),
        Fault(850, FaultKind.CRASH, OTHER_REPLICA, lasts_ms=500, during="move-owner", is_apart=True),
    ),
    # Members leave, masters die, and partitions are divided while the number of backups changes. Of other courses of this history,
    # one in three tells of it; of all drawn ones, one in three hundred.
    "roll-back-by-one": msgspec.structs.replace(draw_options(175, Profile.MIGRATIONS), seed=0),
}
"""Histories for bugs that drawn ones hardly ever meet."""
STAGED_FOUND_BY = {
    "repair-undecided": {"no replica of a living member is taken out"},
    "roll-back-by-one": {"one owner per partition and version", "no replica of a living member is taken out"},
}

CUT_FOUND_BY = {
    "serve-on-waking": {"no acknowledged write is lost"},
    "measure-by-another-alarm": {"no acknowledged write is lost"},
    "come-back-empty": {"no acknowledged write is lost"},
    "forget-removals": {"replicas are equal at rest", "no acknowledged write is lost"},
    "merge-as-new": {"no acknowledged write is lost"},
    "own-clock": {"no acknowledged write is lost"},
}

LOSS_FOUND_BY = {
    "forget-losses": {"what is lost is told"},
    "inherit-no-losses": {"a loss is told until it is acknowledged"},
    "tell-losses-of-all": {"only what is lost is told"},
}
PROTECTION_CANARIES = ("serve-when-too-small", "confirm-when-too-small")

MEMBERSHIP_FOUND_BY = {
    "accept-equal-version": {"views only move on", "a list is the master's"},
    "accept-any-list": {"a list is the master's"},
    "claim-trusting-some": {"who claims suspects everybody older"},
    "agree-trusting-all": {"who agrees suspects everybody older"},
    "claim-own-version": {"a claimer's version is above all"},
    "claim-without-asking": {"a claimer's list has those that agreed"},
    "tell-nobody-removed": {"the cluster becomes whole after healing"},
    "look-for-no-other-side": {"the cluster becomes whole after healing"},
}


def test_every_canary_has_an_expectation() -> None:
    expected = {
        *FOUND_BY,
        *CUT_CANARIES,
        *DISK_CANARIES,  # see test_outage_histories
        *DISK_WORLDS,
        *DRIVER_CANARIES,  # see test_exhaustion
        *MIGRATION_CANARIES,
        *MEMBERSHIP_CANARIES,
        *PROTECTION_CANARIES,
        *LEASE_CANARIES,
        *LEAVING_CANARIES,  # see test_last_leaver_checker
        *LOCK_CANARIES,  # see test_lock_histories
        *LOSS_CANARIES,
        *MEMORY_CANARIES,  # see test_memory_histories
        *EVICTION_CANARIES,
        *IDLE_CANARIES,
        *JOURNAL_CANARIES,
        *STAGING_CANARIES,
    }
    assert expected == set(CANARIES)
    assert set(MEMBERSHIP_FOUND_BY) == set(MEMBERSHIP_CANARIES)
    assert set(CUT_FOUND_BY) == set(CUT_CANARIES)
    assert set(LOSS_FOUND_BY) == set(LOSS_CANARIES)
    assert set(MIGRATION_FOUND_BY) | set(STAGED) == set(MIGRATION_CANARIES)


def test_a_history_that_ends_at_a_violation_tells_of_the_same_one_and_goes_no_further() -> None:
    options, bug = draw_options(0, Profile.BOUNDED), CANARIES["evict-newest"]
    whole = run(options, bug)
    ended = run(options, bug, ends_at=lambda violation: violation == whole.violations[1])
    assert ended.violations[:2] == whole.violations[:2]
    assert ended.inputs < whole.inputs / 2


@pytest.mark.parametrize("canary", LOSS_FOUND_BY)
def test_a_planted_bug_in_what_is_told_of_losses_is_found(canary: str) -> None:
    assert_found(canary, Profile.DEFAULT, SEEDS, LOSS_FOUND_BY[canary])


def tells_first(result: Result, by: set[str]) -> bool:
    return bool(result.violations) and result.violations[0].what in by


@pytest.mark.parametrize("canary", FOUND_BY)
def test_a_planted_bug_is_found(canary: str) -> None:
    seeds, by = SEEDS[FROM_SEED.get(canary, 0) :], FOUND_BY[canary]
    result = find(canary, [Profile.FAILOVER, Profile.DEFAULT], seeds, lambda result: tells_first(result, by))
    assert f"--seed {result.seed}" in repeat_command(result)
    assert f"--canary tests.planted_bugs:{canary} " in repeat_command(result)


def test_increments_that_are_asked_for_again_and_count_again_are_found() -> None:
    """The record of seeds has one for each bug, which may tell of it otherwise."""
    what, bug = "an increment counts once", CANARIES["forget-outcomes"]
    drawn = (draw_options(seed, Profile.FAILOVER) for seed in SEEDS)
    histories = (run(each, bug, ends_at=lambda violation: violation.what == what) for each in drawn)
    assert any(each.what == what for history in histories for each in history.violations)


@pytest.mark.parametrize("canary", MIGRATION_FOUND_BY)
def test_a_planted_bug_of_migrations_is_found(canary: str) -> None:
    first = FROM_SEED.get(canary, 0)
    result = assert_found(canary, Profile.MIGRATIONS, range(first, first + len(SEEDS)), MIGRATION_FOUND_BY[canary])
    assert f"--seed {result.seed} --profile migrations" in repeat_command(result)
    assert f"--canary tests.planted_bugs:{canary} " in repeat_command(result)


@pytest.mark.parametrize("canary", STAGED)
def test_a_planted_bug_is_found_where_its_rule_matters(canary: str) -> None:
    assert not run(STAGED[canary]).violations
    found = {violation.what for violation in run(STAGED[canary], CANARIES[canary]).violations}
    assert STAGED_FOUND_BY[canary] & found


@pytest.mark.parametrize("canary", CUT_FOUND_BY)
def test_a_planted_bug_of_merging_is_found(canary: str) -> None:
    first = FROM_SEED.get(canary, 0)
    assert_found(canary, Profile.CUTS, range(first, first + len(SEEDS)), CUT_FOUND_BY[canary])


@pytest.mark.parametrize("canary", MEMBERSHIP_FOUND_BY)
def test_a_planted_bug_of_membership_is_found(canary: str) -> None:
    by = MEMBERSHIP_FOUND_BY[canary]
    result = find(canary, [Profile.MEMBERSHIP], MEMBERSHIP_SEEDS, ends_at=lambda each: each.what in by)
    assert by & {violation.what for violation in result.violations}
    assert f"--seed {result.seed} --profile membership" in repeat_command(result)
    assert f"--canary tests.planted_bugs:{canary} " in repeat_command(result)


@pytest.mark.parametrize("canary", PROTECTION_CANARIES)
def test_a_planted_bug_of_protection_is_found_by_what_leaves_the_members(canary: str) -> None:
    """What histories with cuts find of other rules is not looked at here."""
    what = "a side that is too small serves no protected map"
    protected = {seed: options for seed in SEEDS if (options := draw_options(seed, Profile.CUTS)).protection.is_on}
    found = assert_found(canary, Profile.CUTS, protected, {what})
    assert found.seed in protected
    assert not any(
        violation.what == what for options in list(protected.values())[:5] for violation in run(options).violations
    )
