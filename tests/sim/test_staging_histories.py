"""Whole histories in which jobs stage what they write, while members crash, come, go and give partitions away."""

import pytest

from phalanx.common.ids import MemberId
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.checkers.staging_checker import KEPT, NEVER_SEEN, ONCE, REPLACED, WHOLE, StagingChecker
from phalanx_proof.sim.history.operations import NEVER
from phalanx_proof.sim.history.staging import TEXT, UNSEEN, Ack, JobDecision, StagedHistory
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from planted_bugs.staging import STAGING_CANARIES
from support.histories import blocks, count_all, play_all
from support.planted import assert_found

SEEDS = range(16)
FOUND_BY = {
    "forget-batches": {ONCE},
    "take-all-attempts": {NEVER_SEEN},
    "forget-what-is-gone": {WHOLE},
    "end-steps-early": {WHOLE, KEPT, ONCE},
    "keep-what-was-taken": {"journals are equal at rest"},
    "apply-while-copying": {WHOLE, "who is given a replica has it", "replicas are equal at rest"},
}
"""Canary to what must tell of it."""
LATE = {"apply-while-copying": range(64), "forget-what-is-gone": range(10, 13)}
"""Where more histories have to be looked at: a step has to meet a copy, and then that copy has to become the owner."""


@pytest.mark.parametrize("block", blocks(4, in_brief=(2,)))
def test_batches_and_contents_are_whole_once_and_kept_whatever_breaks(block: int) -> None:
    applied = replaced = 0
    for result in play_all(range(4 * block, 4 * block + 4), Profile.STAGING):
        applied += result.counts["partitions with batches applied"]
        replaced += result.counts["contents replaced"]
    assert applied > 50
    assert replaced > 0


@pytest.mark.long
@pytest.mark.parametrize("block", range(20))
def test_the_same_in_many_more_histories(block: int) -> None:
    play_all(range(1_000 + 10 * block, 1_010 + 10 * block), Profile.STAGING)


@pytest.mark.parametrize(
    ("seeds", "stopped", "refused", "applied"),
    [(range(2, 7), 10, 10, 50), pytest.param(range(12), 20, 10, 100, marks=pytest.mark.long)],
    ids=["brief", "long"],
)
def test_jobs_that_stop_for_long_and_go_on_are_refused_or_whole_through_cuts_too(
    seeds: range, stopped: int, refused: int, applied: int
) -> None:
    counts = count_all(seeds, Profile.STAGING_CUTS)
    assert counts["staged jobs stopped"] > stopped
    assert counts["staged jobs refused"] > refused
    assert counts["partitions with batches applied"] > applied


def test_every_bug_of_staging_has_an_expectation() -> None:
    assert set(FOUND_BY) == set(STAGING_CANARIES)


@pytest.mark.parametrize("canary", FOUND_BY)
def test_bugs_of_staging_are_found(canary: str) -> None:
    profile = Profile.STAGING_CUTS if canary == "forget-what-is-gone" else Profile.STAGING
    assert_found(canary, profile, LATE.get(canary, SEEDS), FOUND_BY[canary])


# --- the checker itself --------------------------------------------------------------------------------------------

OPTIONS = draw_options(0, Profile.STAGING)
MEMBER = MemberId("10.0.0.1:5701/x")


class NothingLost:
    """In the place of what is known of tables: no replica was ever lost."""

    def may_be_lost(self, part: int, replier: MemberId, begin: int, end: int) -> bool:
        return False


def jobs() -> StagedHistory:
    """Batch 2 is confirmed in the only partition, and one key was written after it; batch 3 is under way."""
    found = StagedHistory(OPTIONS.partitions)
    found.applied = [Ack(2, 0, 1, MEMBER, 10, 20)]
    found.written = {sorted(found.direct)[0]: Ack(2, 0, 1, MEMBER, 30, 40)}
    found.begun = 3
    return found


def judged(applied: dict[bytes, bytes], replaced: dict[bytes, bytes], made: StagedHistory | None = None) -> set[str]:
    findings = Findings()
    made = made if made is not None else jobs()
    StagingChecker(findings, NothingLost(), made).check([applied], [replaced], 100)  # type: ignore[arg-type]
    return {violation.what for violation in findings.violations}


def batch(number: int, **others: bytes) -> dict[bytes, bytes]:
    made = jobs()
    first = next(iter(made.written))
    return dict.fromkeys(made.keys, TEXT + b"%d" % number) | {first: others.get("first", TEXT + b"%d!" % number)}


def test_what_is_right_is_not_reported() -> None:
    assert judged(batch(2), {}) == set()
    assert judged(batch(3, first=TEXT + b"3"), {}) == set()


def test_what_is_wrong_with_batches_is_reported() -> None:
    keys = [key for key in jobs().keys if key not in jobs().direct]
    assert judged(batch(2, first=TEXT + b"2"), {}) == {ONCE}
    assert judged(batch(3, first=TEXT + b"3") | {keys[0]: TEXT + b"2"}, {}) == {WHOLE}
    assert KEPT in judged(batch(1), {})
    assert KEPT in judged({}, {})
    assert KEPT in judged(batch(4, first=TEXT + b"4"), {})
    assert NEVER_SEEN in judged(batch(2) | {keys[0]: UNSEEN}, {})


def test_what_is_wrong_with_contents_is_reported() -> None:
    made = jobs()
    made.decisions = [JobDecision(1, 10, 20, MEMBER), JobDecision(2, 30, 40, MEMBER), JobDecision(3, 50, NEVER, None)]
    assert judged(batch(2), made.content_of(2), made) == set()
    assert judged(batch(2), made.content_of(3), made) == set(), "it may have been decided"
    assert judged(batch(2), made.content_of(1), made) == {REPLACED}
    assert judged(batch(2), made.content_of(4), made) == {REPLACED}
    assert judged(batch(2), {}, made) == {REPLACED}
    assert judged(batch(2), dict(list(made.content_of(2).items())[1:]), made) == {REPLACED}
    assert judged(batch(2), made.content_of(1) | made.content_of(2), made) == {REPLACED}


def test_of_sides_that_merged_only_entries_that_no_content_has_are_reported() -> None:
    made = jobs()
    made.decisions = [JobDecision(1, 10, 20, MEMBER), JobDecision(2, 30, 40, MEMBER)]
    both = made.content_of(1) | made.content_of(2)
    lacking = next(key for key in made.keys if key not in made.content_of(1))
    for replaced, wanted in ((both, set()), ({lacking: TEXT + b"1"}, {REPLACED}), (made.content_of(3), {REPLACED})):
        findings = Findings()
        checker = StagingChecker(findings, NothingLost(), made, has_sides=True)  # type: ignore[arg-type]
        checker.check([batch(1)], [replaced], 100)
        assert {violation.what for violation in findings.violations} == wanted
