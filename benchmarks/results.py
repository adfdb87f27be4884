"""What the benchmark found, as values: written as JSON as they are, and shown as tables by `report`."""

from __future__ import annotations

import statistics

import msgspec


class Goal(msgspec.Struct, frozen=True):
    """What a comparison should come to."""

    least: float | None = None
    """The ratio (or, where `of_rate`, the rate) must not be less."""
    most: float | None = None
    """The ratio must not be greater."""
    of_rate: bool = False
    """Speaks of our own rate: there is nothing to compare with."""

    def is_met(self, figure: float) -> bool:
        return (self.least is None or figure >= self.least) and (self.most is None or figure <= self.most)


class Side(msgspec.Struct):
    """One contender's figures."""

    label: str
    rates: list[float]
    """Of each round, in the comparison's unit."""
    p50_us: float | None = None
    p99_us: float | None = None
    """Latencies in microseconds; None where single operations were not timed."""
    server_cpu: list[float] = []
    """Of each server process: processor time over wall time, of all rounds together; 1.0 is one core kept busy."""
    client_cpu: float | None = None
    """The same of the process that asks; None where it is not one process."""

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)


class Comparison(msgspec.Struct):
    """One measurement of ours, and of theirs where there is one."""

    name: str
    unit: str
    ours: Side
    theirs: Side | None
    ratios: list[float]
    """Ours over theirs, of each pair of rounds."""
    goal: Goal | None = None
    remark: str = ""

    @property
    def ratio(self) -> float | None:
        return statistics.median(self.ratios) if self.ratios else None

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is met; None where there is no goal, or nothing to compare with."""
        if self.goal is None:
            return None
        figure = self.ours.rate if self.goal.of_rate else self.ratio
        return None if figure is None else self.goal.is_met(figure)


class Environment(msgspec.Struct):
    """Where and with what it was measured: a ratio means nothing without it."""

    python: str
    cores: int
    processor: str
    phalanx: str
    redis_server: str | None
    redis_py: str | None
    hiredis: str | None
    pyspark: str | None
    load_before: float
    """Load average of the last minute when the run began: others at work on the machine disturb the figures."""


class Report(msgspec.Struct):
    """One run."""

    environment: Environment
    comparisons: list[Comparison]
    notes: list[str]


def span_of(ratios: list[float]) -> str:
    """The middle one of ratios, with the least and the greatest, in words; of none, a dash."""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else "–"
