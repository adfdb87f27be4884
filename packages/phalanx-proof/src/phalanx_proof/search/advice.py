"""Which heartbeat timeout fits stated conditions: what a search with each of several found, and what follows from it.

Two ends: a member that only paused should stay, one that hangs should go soon. A timeout is acceptable if it and all longer
ones that were tried removed no more running members than is accepted; of those the one that finds hung members soonest is
recommended. None seen is not none at all: of n pauses without a removal at most 3 in n lead to one, with 95 % confidence.
"""

from __future__ import annotations

import msgspec

from phalanx.common.ids import Millis
from phalanx_proof.search.findings import SearchFindings, ViolationGroup
from phalanx_proof.sim.durations import distribution
from phalanx_proof.sim.fault import FaultKind

SURE_OF = 3
"""Where nothing was seen in n cases, at most this in n happens, with 95 % confidence."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What one timeout with one detector came to."""

    timeout_ms: Millis
    detector: str
    histories: int
    troubles: int
    """Pauses and stalls that should have removed nobody."""
    removed: int
    """Members that were removed while they ran."""
    hangs: int
    found: int
    """Hung members that were removed before the history ended."""
    found_after_ms: dict[str, int]
    """Of those: their number, median, 99th percentile and maximum."""

    @property
    def removed_per_thousand(self) -> float:
        return 1_000 * self.removed / self.troubles if self.troubles else 0.0

    @property
    def most_per_thousand(self) -> float:
        """What it can be in truth, where nothing was seen."""
        return 1_000 * SURE_OF / self.troubles if self.troubles else 1_000.0


class Advice(msgspec.Struct, frozen=True):
    """What to set, and why."""

    trials: list[Trial]
    """By detector and timeout."""
    recommended: Trial | None
    because: list[str]
    """Sentences, the most important first."""


def advise(findings: SearchFindings, *, accepted_per_thousand: float = 0.0) -> Advice:
    """Judge the timeouts of a search over heartbeat timeouts, and perhaps detectors, and recommend one of them."""
    trials = sorted((_trial(group) for group in findings.groups), key=lambda each: (each.detector, each.timeout_ms))
    candidates = []
    for detector in dict.fromkeys(each.detector for each in trials):
        of_one = [each for each in trials if each.detector == detector]
        fit = _longest_acceptable_tail(of_one, accepted_per_thousand)
        if fit:
            candidates.append(fit[0])
    chosen = min(candidates, key=_merit, default=None)
    return Advice(trials, chosen, _words(trials, chosen, accepted_per_thousand))


def _trial(group: ViolationGroup) -> Trial:
    named = dict(group.configuration.settings)
    stalls = group.counted["faults"][FaultKind.CUT_ONE_WAY.value]
    return Trial(
        timeout_ms=int(named["heartbeat_timeout_ms"]),  # type: ignore[arg-type]  # the advisor sweeps it
        detector=str(named.get("failure_detector", "phi")),
        histories=group.histories,
        troubles=group.pauses + stalls,
        removed=group.removed_running,
        hangs=group.hangs,
        found=len(group.detected_after_ms),
        found_after_ms=distribution(group.detected_after_ms),
    )


def _longest_acceptable_tail(trials: list[Trial], accepted: float) -> list[Trial]:
    """Return the longest timeouts, as far down as all of them are acceptable; a short one
    that is acceptable below a bad one is luck.
    """
    tail: list[Trial] = []
    for each in reversed(trials):
        if not each.found or each.removed_per_thousand > accepted:
            break
        tail.insert(0, each)
    return tail


def _merit(trial: Trial) -> tuple[int, int, bool]:
    """Return what to rank an acceptable timeout by, the least first; where all else is equal, the usual detector."""
    return trial.found_after_ms["p99"], trial.timeout_ms, trial.detector != "phi"


def _words(trials: list[Trial], chosen: Trial | None, accepted: float) -> list[str]:
    if chosen is None:
        worst = trials[-1]
        if not worst.found:
            return ["No hung member was found by the longest timeout: give longer histories (--set duration=…)."]
        return [
            f"None of these timeouts is long enough: {_ms(worst.timeout_ms)} still removed {worst.removed:,} members that "
            f"ran, in {worst.troubles:,} pauses and stalls ({worst.removed_per_thousand:.2f} of a thousand; accepted: "
            f"{accepted:g}). Try longer ones, or make pauses shorter."
        ]
    said = [f"Set heartbeat_timeout_ms to {chosen.timeout_ms} ({chosen.detector})."]
    if not chosen.removed:
        said.append(
            f"None of {chosen.troubles:,} pauses and stalls led to the removal of a member that ran: fewer than "
            f"{chosen.most_per_thousand:.2g} of a thousand do, with 95 % confidence."
            if chosen.troubles
            else "Nothing disturbed the members, so the shortest timeout is as good as any: state pauses or stalls."
        )
    else:
        said.append(
            f"{chosen.removed:,} members that ran were removed in {chosen.troubles:,} pauses and stalls "
            f"({chosen.removed_per_thousand:.2f} of a thousand; accepted: {accepted:g})."
        )
    after = chosen.found_after_ms
    said.append(
        f"A member that hangs is removed after {_ms(after['median'])} in half of the cases and after {_ms(after['p99'])} in "
        f"99 of 100 ({chosen.found:,} of {chosen.hangs:,} hangs found)."
    )
    of_one = [each for each in trials if each.detector == chosen.detector]
    place = of_one.index(chosen)
    if place:
        below = of_one[place - 1]
        said.append(
            f"At {_ms(below.timeout_ms)}, {below.removed:,} members that ran were removed "
            f"({below.removed_per_thousand:.2f} of a thousand)."
        )
    else:
        said.append("It is the shortest that was tried: a shorter one can do as well.")
    if place + 1 < len(of_one) and of_one[place + 1].found:
        longer = of_one[place + 1]
        said.append(
            f"At {_ms(longer.timeout_ms)} a hung member stays for {_ms(longer.found_after_ms['p99'])} in 99 of 100 cases."
        )
    return said


def _ms(value: int) -> str:
    return f"{value:,} ms" if value < 1_000 else f"{value / 1_000:.3g} s"
