"""The accrual detector against the textbook's formula, and what it must not learn."""

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId
from phalanx.membership.detect.deadline_detector import DeadlineFailureDetector
from phalanx.membership.detect.failure_detector import FailureDetector, make_failure_detector
from phalanx.membership.detect.phi_detector import PhiFailureDetector
from support.harness import lone_id

A, B, C = lone_id("A"), lone_id("B"), lone_id("C")
QUIET_LIMIT = 1_000 + 5_000 + 1_404
"""Interval, acceptable pause, and 5.612 deviations of 250 ms: what a threshold of 8 amounts to."""


def phi_detector(interval_ms: int, timeout_ms: int, **settings: Any) -> PhiFailureDetector:
    return PhiFailureDetector(
        NodeConfig(heartbeat_interval_ms=interval_ms, heartbeat_timeout_ms=timeout_ms, **settings)
    )


def phi() -> PhiFailureDetector:
    return phi_detector(1_000, 10_000)


def names(detector: FailureDetector, now: int) -> list[MemberId]:
    return [each.member for each in detector.silent(now)]


def beat(detector: FailureDetector, now: int, beats: int, gap: int = 1_000) -> int:
    for _ in range(beats):
        now += gap
        detector.heartbeat(A, now)
    return now


def textbook_limit(gaps: list[int], threshold: float, window: int, interval: int, timeout: int) -> int:
    """Millisecond by millisecond: the first one at which phi has reached the threshold."""
    seen = [interval - interval // 4, interval + interval // 4, *gaps][-window:]
    mean = max(sum(seen) / len(seen), interval) + timeout / 2
    own = sum(seen) / len(seen)
    deviation = max(math.sqrt(sum((gap - own) ** 2 for gap in seen) / len(seen)), interval / 4)
    for elapsed in range(timeout):
        if math.erfc((elapsed - mean) / deviation / math.sqrt(2)) / 2 <= 10**-threshold:
            return elapsed
    return timeout


@given(
    gaps=st.lists(st.integers(100, 1_100), max_size=30),
    threshold=st.sampled_from([1.0, 3.0, 8.0, 12.0, 16.0]),
    window=st.integers(10, 15),
)
def test_the_instant_of_suspicion_is_that_of_the_textbook(gaps: list[int], threshold: float, window: int) -> None:
    detector = phi_detector(200, 1_200, phi_threshold=threshold, phi_window=window)
    now = 5_000
    detector.watch(A, now)
    learnt: list[int] = []
    for gap in gaps:
        limit = textbook_limit(learnt, threshold, window, 200, 1_200)
        now += gap
        if gap <= limit:
            learnt.append(gap)
        detector.heartbeat(A, now)
    limit = textbook_limit(learnt, threshold, window, 200, 1_200)
    assert names(detector, now + limit - 2) == []
    deadline = detector.silence.next_deadline()
    assert deadline is not None
    assert deadline <= now + limit + 1
    assert names(detector, now + limit + 1) == [A]


@given(st.lists(st.tuples(st.sampled_from([A, B, C]), st.integers(0, 4_000)), max_size=40), st.booleans())
def test_woken_only_at_its_deadlines_a_driver_misses_nobody_and_is_not_kept_awake(
    beats: list[tuple[MemberId, int]], deadline: bool
) -> None:
    def make() -> FailureDetector:
        return DeadlineFailureDetector(2_000) if deadline else phi_detector(1_000, 3_000)

    woken, asked = make(), make()
    now = 10_000
    found: list[MemberId] = []
    for detector in (woken, asked):
        for member in (A, B, C):
            detector.watch(member, now)
    for member, gap in [*beats, (A, 30_000)]:
        wakes = 0
        while (due := woken.silence.next_deadline()) is not None and due <= now + gap:
            found = names(woken, due)
            wakes += 1
            after = woken.silence.next_deadline()
            assert after is None or after > due
        assert wakes <= 6, "at most one stale and one true wake for each member"
        now += gap
        found = names(woken, now)
        assert found == names(asked, now)
        woken.heartbeat(member, now)
        asked.heartbeat(member, now)


@pytest.mark.rows("PN-13")
def test_a_hung_member_is_suspected_by_its_rhythm_and_the_reason_says_how() -> None:
    detector = phi()
    detector.watch(A, 0)
    now = beat(detector, 0, 200)
    assert detector.silent(now + QUIET_LIMIT - 1) == []
    assert detector.silence.next_deadline() == now + QUIET_LIMIT
    assert detector.silent(now + QUIET_LIMIT) == [
        (A, 7_404, "no heartbeat for 7404 ms: phi is 8.0, the threshold 8; heartbeats came every 1000 ms, deviation 250 ms; "
            "the limit in any case is 10000 ms")
    ]  # fmt: skip
    assert detector.silence.next_deadline() is None
    assert names(detector, now + QUIET_LIMIT + 1) == [A], "as long as it is silent"
    detector.heartbeat(A, now + 9_000)
    assert names(detector, now + 9_001) == []


def test_phi_grows_with_silence_without_an_end() -> None:
    detector = phi()
    detector.watch(A, 0)
    values = [detector.phi(A, now) for now in range(0, 100_000, 50)]
    assert values == sorted(values)
    assert values[0] == pytest.approx(0, abs=1e-9)
    assert detector.phi(A, 6_000) == pytest.approx(math.log10(2))
    assert values[-1] > 10_000


def test_an_irregular_member_is_given_more_time_but_never_more_than_the_timeout() -> None:
    detector = phi()
    detector.watch(A, 0)
    now = 0
    for gap in (600, 5_000) * 50:
        now += gap
        detector.heartbeat(A, now)
    assert names(detector, now + 9_999) == []
    assert names(detector, now + 10_000) == [A]


@pytest.mark.rows("PN-13")
def test_jitter_and_lost_heartbeats_raise_no_suspicion_and_a_hung_member_is_found_in_bounded_time() -> None:
    for seed in range(10):
        chance = random.Random(seed)
        detector = phi()
        detector.watch(A, 0)
        last = 0
        for beat_number in range(1, 3_000):
            if chance.random() < 0.05:
                continue
            now = max(last, beat_number * 1_000 + int(chance.expovariate(1 / 100)))
            assert detector.silent(now) == [], (seed, now)
            detector.heartbeat(A, now)
            last = now
        assert names(detector, last + QUIET_LIMIT - 1) == []
        assert names(detector, last + 10_000) == [A]


@pytest.mark.parametrize("noticed_first", [True, False])
def test_a_pause_of_this_member_is_nobodys_silence_and_teaches_nothing(noticed_first: bool) -> None:
    """The heartbeats that queued up may be taken in before the pause is noticed, or after it."""
    for pause in (3_000, 6_000, 60_000, 100_000_000):
        detector, calm = phi(), phi()
        detector.watch(A, 0)
        calm.watch(A, 0)
        now = beat(detector, 0, 20)
        beat(calm, 0, 20)
        woke = now + pause
        if noticed_first:
            detector.observer_was_away(pause, woke)
            assert names(detector, woke) == []
        for _ in range(30):
            detector.heartbeat(A, woke)
        if not noticed_first:
            detector.observer_was_away(pause, woke)
        assert names(detector, woke + QUIET_LIMIT - 1) == []
        assert names(detector, woke + QUIET_LIMIT) == [A]
        assert detector.phi(A, woke + 6_500) == calm.phi(A, now + 6_500), "nothing was learnt"


def test_silence_before_and_after_a_pause_counts_together() -> None:
    detector = phi()
    detector.watch(A, 0)
    detector.observer_was_away(50_000, 54_000)
    assert names(detector, 50_000 + QUIET_LIMIT - 1) == []
    assert names(detector, 50_000 + QUIET_LIMIT) == [A]


def test_a_member_that_is_watched_again_is_as_before_and_one_can_be_forgotten() -> None:
    detector = phi()
    detector.watch(A, 0)
    detector.watch(B, 3_000)
    detector.heartbeat(C, 0)
    assert names(detector, QUIET_LIMIT) == [A]
    assert names(detector, 3_000 + QUIET_LIMIT - 10) == [A]
    assert names(detector, 3_000 + QUIET_LIMIT) == [A, B]
    detector.watch(B, 25_000)
    assert names(detector, 25_000) == [A, B], "watching again changes nothing"
    detector.forget(A)
    detector.forget(A)
    assert names(detector, 25_000) == [B]
    detector.forget(B)
    assert (names(detector, 99_000), detector.silence.next_deadline()) == ([], None)
    detector.watch(A, 99_000)
    assert detector.silence.next_deadline() == 99_000 + QUIET_LIMIT


@pytest.mark.rows("PN-13")
def test_the_settings_choose_the_detector() -> None:
    chosen = make_failure_detector(NodeConfig())
    plain = make_failure_detector(NodeConfig(failure_detector="deadline"))
    eager = make_failure_detector(NodeConfig(phi_threshold=1, phi_acceptable_pause_ms=1_000, phi_min_deviation_ms=100))
    for detector, due in ((chosen, QUIET_LIMIT), (plain, 10_000), (eager, 2_000 + 321)):
        detector.watch(A, 0)
        assert detector.silence.next_deadline() == due
