"""What a member did in the last ten minutes: points of its counters."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

from phalanx.common.errors import ErrorCode
from phalanx.grid.replica.data_size import Size
from phalanx.runtime.connections.call_statistics import CallStatistics
from phalanx.runtime.statistics.activity import EVERY_S, MOST_POINTS, OVER_POINTS, Activity
from phalanx.wire import messages as m


class Counted:
    """A member's counters, and a clock, in the hands of a test."""

    def __init__(self, statistics: CallStatistics | None) -> None:
        self.now_s, self.used_s = 100.0, 5.0
        self.memory: Any = SimpleNamespace(used=1_000, data=SimpleNamespace(size=Size(entries=7)))
        self.events: Counter[str] = Counter()
        self.activity = Activity(statistics, self.events, lambda: self.now_s, lambda: self.used_s)

    def later(self, seconds: float) -> Any:
        self.now_s += seconds
        return self.activity.look(self.memory, 3)


def test_a_point_is_what_the_counters_have_grown_by() -> None:
    statistics = CallStatistics()
    statistics.find("flights", m.Get).note_end(0.0002, None)
    counted = Counted(statistics)
    assert counted.later(EVERY_S - 0.1) is None, "it is too early"
    statistics.find("flights", m.Get).note_end(0.0002, None)
    statistics.find("flights", m.Put).note_end(0.3, ErrorCode.NOT_READY)
    counted.events["MigrationCommitted"] += 2
    counted.used_s += 0.75
    told = counted.later(1.0)
    [point] = told.points
    assert (point.took_ms, point.reads, point.writes, point.errors) == (3_900, 1, 1, 1), "the first call was before"
    assert sum(point.classes) == 2
    assert (point.entries, point.memory, point.clients, point.moves, point.processor_ms) == (7, 1_000, 3, 2, 750)
    [calls] = told.maps
    assert (calls.map, sum(calls.reads), sum(calls.writes), calls.errors) == ("flights", 1, 1, 1)
    assert told.over_ms == 3_900
    for number in range(OVER_POINTS):
        told = counted.later(EVERY_S)
        assert told.points[-1].reads == 0
        assert bool(told.maps) == (number < OVER_POINTS - 1), "maps are told of some points together"


def test_points_are_bounded_and_another_incarnation_begins_anew() -> None:
    counted = Counted(None)
    for _ in range(MOST_POINTS + 5):
        told = counted.later(EVERY_S)
    assert len(told.points) == MOST_POINTS
    assert told.recorded == MOST_POINTS + 5
    assert not told.counts_calls
    counted.activity.begin()
    assert counted.later(1.0) is None
    assert counted.later(EVERY_S).recorded == 1


def test_a_map_that_lost_its_figures_and_got_them_back_has_no_negative_calls() -> None:
    statistics = CallStatistics()
    for _ in range(5):
        statistics.find("flights", m.Get).note_end(0.0002, None)
    counted = Counted(statistics)
    del statistics.of["flights", m.Get]
    statistics.find("flights", m.Get).note_end(0.3, None)
    [point] = counted.later(EVERY_S).points
    assert point.reads == 1
    assert min(point.classes) == 0
