"""The accrual failure detector: suspicion grows with silence, measured against the rhythm of each member.

phi = -log10(the probability that a heartbeat comes even later than now), if the times between heartbeats are normally
distributed with the mean and the deviation of the last ones (Hayashibara et al., "The phi accrual failure detector").
Phi only grows while a member is silent, so the time at which it crosses the threshold is known at each heartbeat:

    mean + acceptable pause + deviation * z,   where z is exceeded with the probability 10 ** -threshold

but never later than the heartbeat timeout, so a hung member is found by then, however irregular it was.

Nothing is learnt from a gap in which this member itself was away, the first gap after one, a gap below half of the
interval (heartbeats that queued up, a member list between two heartbeats), and a gap above the limit. The mean is never
below the configured interval, the deviation never below its floor.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import NormalDist

from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId, Millis
from phalanx.membership.detect.silence_limits import SilenceLimits, Silent


class Rhythm:
    """The last times between heartbeats of one member. Begins with an estimate: the interval, give or take a quarter."""

    def __init__(self, interval_ms: Millis, window: int) -> None:
        self._interval_ms = interval_ms
        self.skip = False
        """Whether the next gap contains a pause of this member; then nothing is learned from it."""
        self._window = window
        self._gaps: deque[tuple[Millis, Millis]] = deque()
        """When the heartbeat came, and how long after the one before it."""
        self._sum = self._squares = 0
        for gap in (interval_ms - interval_ms // 4, interval_ms + interval_ms // 4):
            self.learn(-1, gap)

    def learn(self, now: Millis, gap_ms: Millis) -> None:
        if len(self._gaps) == self._window:
            self._count(-self._gaps.popleft()[1], -1)
        self._gaps.append((now, gap_ms))
        self._count(gap_ms, 1)

    def unlearn_since(self, since: Millis) -> None:
        """Drop what was learnt after that time, except one gap: nothing at all has no mean."""
        while len(self._gaps) > 1 and self._gaps[-1][0] > since:
            self._count(-self._gaps.pop()[1], -1)

    def _count(self, gap_ms: Millis, sign: int) -> None:
        self._sum += gap_ms
        self._squares += sign * gap_ms * gap_ms

    @property
    def mean_ms(self) -> float:
        return max(self._sum / len(self._gaps), self._interval_ms)

    @property
    def deviation_ms(self) -> float:
        count = len(self._gaps)
        return math.sqrt(count * self._squares - self._sum * self._sum) / count


class PhiFailureDetector:
    """A member is gone when phi reaches the threshold, or after the timeout at the latest. A setting of 0 is derived.

    Then small intervals need no tuning: the acceptable pause is half of the timeout, the floor of the deviation a
    quarter of the interval.
    """

    def __init__(self, config: NodeConfig) -> None:
        self._interval_ms = config.heartbeat_interval_ms
        self._timeout_ms = config.heartbeat_timeout_ms
        self._threshold = config.phi_threshold
        self._z = -NormalDist().inv_cdf(10**-config.phi_threshold)
        self._window = config.phi_window
        self._min_deviation_ms = config.phi_min_deviation_ms or self._interval_ms / 4
        self._pause_ms = config.phi_acceptable_pause_ms or self._timeout_ms / 2
        self._rhythms: dict[MemberId, Rhythm] = {}
        self.silence = SilenceLimits()

    def watch(self, member: MemberId, now: Millis) -> None:
        if member not in self._rhythms:
            rhythm = self._rhythms[member] = Rhythm(self._interval_ms, self._window)
            self.silence.note_heard(member, now, self._limit_ms(rhythm))

    def forget(self, member: MemberId) -> None:
        self._rhythms.pop(member, None)
        self.silence.forget(member)

    def heartbeat(self, member: MemberId, now: Millis) -> None:
        rhythm = self._rhythms.get(member)
        if rhythm is None:
            return
        gap = now - self.silence.heard[member]
        if not rhythm.skip and self._interval_ms <= 2 * gap and gap <= self._limit_ms(rhythm):
            rhythm.learn(now, gap)
        rhythm.skip = False
        self.silence.note_heard(member, now, self._limit_ms(rhythm))

    def observer_was_away(self, missed_ms: Millis, now: Millis) -> None:
        for member, rhythm in self._rhythms.items():
            # Heartbeats that came meanwhile can have been handled first, with the present time: they say nothing of the rhythm.
            rhythm.unlearn_since(now - missed_ms)
            rhythm.skip = True
            self.silence.note_heard(member, min(self.silence.heard[member] + missed_ms, now), self._limit_ms(rhythm))

    def silent(self, now: Millis) -> list[Silent]:
        return [
            Silent(member, now - self.silence.heard[member], self._why(member, now))
            for member in self.silence.past(now)
        ]

    def phi(self, member: MemberId, now: Millis) -> float:
        """Return how improbable it is that the watched member still lives, as the number of zeros; for people."""
        rhythm = self._rhythms[member]
        y = (now - self.silence.heard[member] - rhythm.mean_ms - self._pause_ms) / self._deviation_ms(rhythm)
        if y < 30:
            return -math.log10(math.erfc(y / math.sqrt(2)) / 2) + 0.0
        # Here erfc would soon be 0; its asymptote is exact to a thousandth.
        return y * y / 2 / math.log(10) + math.log10(y * math.sqrt(2 * math.pi))

    def _deviation_ms(self, rhythm: Rhythm) -> float:
        return max(rhythm.deviation_ms, self._min_deviation_ms)

    def _limit_ms(self, rhythm: Rhythm) -> Millis:
        unlikely = rhythm.mean_ms + self._pause_ms + self._deviation_ms(rhythm) * self._z
        return max(1, min(math.ceil(unlikely), self._timeout_ms))

    def _why(self, member: MemberId, now: Millis) -> str:
        rhythm = self._rhythms[member]
        return (
            f"no heartbeat for {now - self.silence.heard[member]} ms: phi is {self.phi(member, now):.1f}, the threshold "
            f"{self._threshold:g}; heartbeats came every {rhythm.mean_ms:.0f} ms, deviation {self._deviation_ms(rhythm):.0f} ms; "
            f"the limit in any case is {self._timeout_ms} ms"
        )
