"""Histories in which entries expire when nobody uses them, while members crash, hang, come and go (PX-17, PX-18)."""

import pytest

from phalanx.codec.hashing import partition_of
from phalanx.common.ids import MemberId
from phalanx.common.map_plan import MapPlan
from phalanx.common.table import PartitionTable
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.checkers.idle_checker import IdleChecker, Life, Use
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from planted_bugs.idle import IDLE_CANARIES
from support.histories import count_all, play_all
from support.planted import assert_found

A = MemberId("10.0.0.1:5701/a")
TABLE = PartitionTable((A,), ((0,),), (1,), 1, (0,), MapPlan())
KEY = b"\xff\xff\xff\xf5i1"


def test_an_entry_in_use_stays_and_another_one_goes_whatever_breaks() -> None:
    counts = count_all(range(2, 15, 4), Profile.BOUNDED)
    assert counts["reads of idle entries"] > 80
    assert counts["idle entries gone"] > 20


@pytest.mark.long
@pytest.mark.parametrize("block", range(10))
def test_the_same_in_many_more_histories(block: int) -> None:
    play_all(range(2_002 + 80 * block, 2_082 + 80 * block, 4), Profile.BOUNDED)


def test_every_fourth_history_has_them_and_none_of_another_profile() -> None:
    assert [draw_options(seed, Profile.BOUNDED).idle for seed in range(4)] == [False, False, True, False]
    assert not draw_options(2, Profile.JOURNAL).idle


FOUND_BY = {
    "inherit-idle-times": {"an entry in use does not expire"},
    "never-idle-again": {"an entry that nobody uses expires", "the cluster becomes whole after healing"},
    "forget-the-maps-idle-time": {"an entry that nobody uses expires", "the cluster becomes whole after healing"},
}


def test_every_bug_of_idle_entries_has_an_expectation() -> None:
    assert set(FOUND_BY) == set(IDLE_CANARIES)


@pytest.mark.parametrize(
    "canary",
    [
        "inherit-idle-times",
        *(pytest.param(name, marks=pytest.mark.long) for name in FOUND_BY if name != "inherit-idle-times"),
    ],
)
def test_bugs_of_idle_entries_are_found(canary: str) -> None:
    assert_found(canary, Profile.BOUNDED, range(2, 90, 4), FOUND_BY[canary])


# --- the checker ------------------------------------------------------------------------------------------------------


def judged(*uses: Use, taken_at: int = 0, lost: tuple[int, ...] = ()) -> list[str]:
    findings = Findings()
    checker = IdleChecker(findings, 100)
    checker.on_table(A, TABLE, taken_at)
    checker.check([Life(KEY, 1_000, list(uses))], lost, 1)
    return [each.what for each in findings.violations]


def test_the_checker_tells_what_is_gone_early_and_what_is_gone_late() -> None:
    stored = Use(0, 10, True)
    assert partition_of(KEY, 1) == 0
    assert judged(stored, Use(900, 970, False)) == ["an entry in use does not expire"]
    assert judged(stored, Use(900, 990, False)) == []
    assert judged(stored, Use(900, 970, False), lost=(0,)) == []
    assert judged(stored, Use(500, 510, True), Use(1_400, 1_470, False)) == ["an entry in use does not expire"]
    assert judged(stored, Use(1_125, 1_130, True)) == []
    assert judged(stored, Use(1_135, 1_140, True)) == ["an entry that nobody uses expires"]
    assert judged(stored, Use(1_135, 1_140, True), taken_at=500) == []
    assert judged(stored, Use(1_135, 1_140, True), taken_at=1_200) == ["an entry that nobody uses expires"]
