"""How long ago blocks were written: by the clock since the boot within a boot, by the wall clock between two."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.disk.blocks import BlockTimes
from phalanx.disk.reading import LogAges, StartTimes
from phalanx.disk.scanning import LogExtent

DAY = 86_400_000


class Written(NamedTuple):
    """A block: when it was written, and of which boot; `begins`: whether it is the first of a segment."""

    boot: str
    mono: int
    wall: int
    begins: bool = True


def ages(*written: Written, now: StartTimes) -> list[int]:
    """How long before the start each block was written."""
    segments, extents = list[list[Written]](), list[LogExtent]()
    for each in written:
        if each.begins:
            segments.append([])
        segments[-1].append(each)
    lsn, blocks = 1, list[tuple[int, BlockTimes]]()
    for number, segment in enumerate(segments, 1):
        times = [BlockTimes(0, each.wall, each.mono) for each in segment]
        extents.append(LogExtent(number, 0, 0, lsn, lsn + len(segment), segment[0].boot, times[0], times[-1]))
        blocks += [(lsn, each) for each in times]
        lsn += len(segment)
    found = LogAges(extents, now)
    return [now.mono_ms - found.now_of(segment_lsn, each) for segment_lsn, each in blocks]


@pytest.mark.rows("DU-28")
def test_within_one_boot_the_clock_since_the_boot_counts() -> None:
    """The wall clock was set ahead by a day meanwhile."""
    log = Written("b", 1_000, 50_000), Written("b", 3_000, 52_000, False), Written("b", 4_000, 53_000 + DAY)
    assert ages(*log, now=StartTimes("b", DAY + 60_000, 10_000)) == [9_000, 7_000, 6_000]


@pytest.mark.rows("DU-28")
def test_between_two_boots_the_wall_clock_counts() -> None:
    log = Written("b", 500_000, 50_000), Written("b", 501_000, 51_000, False)
    assert ages(*log, now=StartTimes("c", 61_000, 700)) == [11_000, 10_000]


@pytest.mark.rows("DU-28")
def test_a_wall_clock_that_was_set_back_takes_no_time_away() -> None:
    log = Written("b", 500_000, 50_000), Written("b", 501_000, 51_000, False)
    assert ages(*log, now=StartTimes("c", 4, 700)) == [1_000, 0]


@pytest.mark.rows("DU-28")
def test_several_boots_add_up() -> None:
    """Boot a lasts 2 s, then 10 s pass; boot b lasts 3 s, then the wall clock is set back by a day; boot c lasts 1 s, then 5 s pass."""
    log = (
        Written("a", 900_000, 100_000), Written("a", 902_000, 102_000, False),
        Written("b", 50, 112_000), Written("b", 3_050, 115_000, False),
        Written("c", 7, 115_000 - DAY), Written("c", 1_007, 116_000 - DAY, False),
    )  # fmt: skip
    assert ages(*log, now=StartTimes("d", 121_000 - DAY, 20)) == [21_000, 19_000, 9_000, 6_000, 6_000, 5_000]


def test_several_processes_of_one_boot_share_its_clock() -> None:
    log = Written("b", 1_000, 0), Written("b", 5_000, 0), Written("b", 6_000, 0)
    assert ages(*log, now=StartTimes("b", 0, 8_000)) == [7_000, 3_000, 2_000]


def test_a_boot_that_comes_twice_is_still_another_one() -> None:
    """A folder was on another machine in between."""
    log = Written("a", 1_000, 10_000), Written("b", 9_000, 20_000), Written("a", 21_000, 30_000)
    assert ages(*log, now=StartTimes("a", 0, 22_000)) == [21_000, 11_000, 1_000]


boots = st.lists(
    st.tuples(st.integers(-DAY, DAY), st.lists(st.integers(0, 10_000), min_size=1, max_size=4)), min_size=1, max_size=5
)


@pytest.mark.rows("DU-28")
@given(boots, st.integers(-DAY, DAY), st.booleans())
def test_no_block_is_younger_than_a_later_one_and_none_is_from_the_future(
    drawn: list[tuple[int, list[int]]], last_step: int, is_same_boot: bool
) -> None:
    """The wall clock jumps between boots as it likes."""
    wall, mono, log = 10 * DAY, 0, list[Written]()
    for number, (step, gaps) in enumerate(drawn):
        wall, mono = wall + step, 1_000 * number
        for index, gap in enumerate(gaps):
            wall, mono = wall + gap, mono + gap
            log.append(Written(str(number), mono, wall, index == 0))
    end = StartTimes(str(len(drawn) - 1), wall, mono + 5) if is_same_boot else StartTimes("new", wall + last_step, 3)
    found = ages(*log, now=end)
    assert found == sorted(found, reverse=True)
    assert found[-1] >= 0


def test_an_empty_log_has_no_ages() -> None:
    assert ages(now=StartTimes("b", 1, 2)) == []
