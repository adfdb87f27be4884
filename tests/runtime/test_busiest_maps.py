"""The maps with figures of their own are those that are called most, whatever was called first."""

from __future__ import annotations

from phalanx.runtime.connections.busiest_maps import REVIEW_EVERY
from phalanx.runtime.connections.call_statistics import CallStatistics
from phalanx.wire.figures import MOST_MAPS, OTHER
from phalanx.wire.messages import Get, Put


def call(statistics: CallStatistics, name: str, times: int, kind: type = Get) -> None:
    for _ in range(times):
        statistics.find(name, kind).note_end(0.001, None)


def shown(statistics: CallStatistics) -> set[str]:
    return {name for name, _ in statistics.of}


def test_a_map_that_is_called_more_takes_the_place_of_one_that_was_called_first() -> None:
    statistics = CallStatistics()
    for number in range(MOST_MAPS):
        call(statistics, f"first {number}", 1, Put)
    for _ in range(REVIEW_EVERY):
        call(statistics, "first 7", 1)
        call(statistics, "late", 1)
    assert {"late", "first 7"} <= shown(statistics)
    call(statistics, "late", 5)
    assert len(shown(statistics) - {OTHER}) == MOST_MAPS
    before = sum(statistics.find("late", Get).classes)
    call(statistics, "late", 5)
    assert sum(statistics.find("late", Get).classes) == before + 5, "its figures grow from then on"


def test_any_number_of_names_takes_a_bounded_place() -> None:
    statistics = CallStatistics()
    for number in range(10 * REVIEW_EVERY):
        call(statistics, f"made up {number}", 1)
        if number > MOST_MAPS:
            call(statistics, "used", 1)
    assert len(shown(statistics) - {OTHER}) <= MOST_MAPS
    assert "used" in shown(statistics), "names that are used once do not hide one that is used"
    assert len(statistics._busiest._others) <= MOST_MAPS


def test_maps_that_stay_busy_keep_their_figures() -> None:
    statistics = CallStatistics()
    busy = [f"busy {number}" for number in range(MOST_MAPS)]
    for turn in range(2 * REVIEW_EVERY):
        for name in busy:
            call(statistics, name, 1)
        call(statistics, f"rare {turn % 70}", 1)
    assert shown(statistics) == {*busy, OTHER}
    assert all(sum(statistics.find(name, Get).classes) == 2 * REVIEW_EVERY for name in busy)
