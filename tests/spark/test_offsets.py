"""Positions of a stream: what is admitted, what is missing, and what the checkpoint says."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.client.blocking.journal import Bounds, Position
from phalanx.common.errors import UsageError
from phalanx_spark.connector.offsets import (
    Offsets,
    admit,
    check_same,
    find_resume_point,
    parse_start,
    positions_at,
    ranges,
    read_offsets,
    share,
    start_word,
)


def bounds(lineage: int, oldest: int, end: int, known_to: int | None = None) -> Bounds:
    return Bounds(lineage, oldest, end, end if known_to is None else known_to)


# --- admission ------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.integers(0, 200))
def test_a_limit_is_used_up_and_shared_evenly(waiting: list[int], most: int) -> None:
    granted = share(waiting, most)
    assert sum(granted) == min(most, sum(waiting))
    assert all(0 <= got <= has for got, has in zip(granted, waiting, strict=True))
    fullest = max(granted)
    assert all(got in (has, fullest, fullest - 1) for got, has in zip(granted, waiting, strict=True))


def test_what_is_left_over_goes_to_those_that_have_most_waiting() -> None:
    assert share([3, 9, 5, 0], 2) == [0, 1, 1, 0]
    assert share([1, 9, 5, 0], 6) == [1, 3, 2, 0]


def test_a_batch_without_limit_goes_to_the_end() -> None:
    positions = (Position(1, 4), Position(1, 9))
    assert admit(positions, [bounds(1, 0, 7), bounds(2, 0, 9)], None) == (Position(1, 7), Position(1, 9))


def test_a_batch_ends_in_the_lineage_that_the_journal_has_then() -> None:
    assert admit((Position(1, 4),), [bounds(2, 0, 9)], 3) == (Position(2, 7),)


def test_a_journal_whose_newest_events_are_not_confirmed_anew_yet_sets_nobody_back() -> None:
    assert admit((Position(1, 4),), [bounds(2, 0, 3, 9)], None) == (Position(1, 4),)


def test_only_partitions_with_events_are_read() -> None:
    found = ranges((Position(1, 4), Position(1, 9)), (Position(2, 7), Position(1, 9)))
    assert [(one.partition, one.begin, one.end, len(one)) for one in found] == [(0, Position(1, 4), Position(2, 7), 3)]


# --- what is missing ------------------------------------------------------------------------------------------------


def test_what_is_all_there_is_read_on_from_where_it_was() -> None:
    positions = (Position(1, 4), Position(2, 9))
    resume = find_resume_point(positions, [bounds(1, 4, 7), bounds(5, 3, 20, 9)])
    assert (resume.positions, resume.lost, resume.gap) == (positions, 0, "")


def test_events_that_dropped_out_are_counted_by_partition() -> None:
    resume = find_resume_point((Position(1, 4), Position(1, 4)), [bounds(1, 0, 50), bounds(1, 10, 50)])
    assert resume.positions == (Position(1, 4), Position(1, 10))
    assert (resume.lost, resume.gap) == (
        6,
        "partition 1: 6 events, from number 4 on, have dropped out of the journal unread",
    )


def test_a_history_that_parted_is_gone_on_with_where_it_did() -> None:
    resume = find_resume_point((Position(1, 10),), [bounds(2, 0, 50, 7)])
    assert (resume.positions, resume.lost) == ((Position(2, 7),), 0)
    assert resume.gap.startswith("partition 0: 3 events that were read did not outlive")


def test_a_history_that_parted_before_what_is_kept_misses_what_lies_between() -> None:
    resume = find_resume_point((Position(1, 10),), [bounds(2, 12, 50, 7)])
    assert (resume.positions, resume.lost) == ((Position(2, 12),), 5)


def test_a_partition_that_began_anew_is_told_even_if_nothing_had_been_read() -> None:
    resume = find_resume_point((Position(1, 0), Position(1, 6)), [bounds(2, 0, 3, -1), bounds(2, 2, 3, -1)])
    assert (resume.positions, resume.lost) == ((Position(2, 0), Position(2, 2)), 2)
    assert resume.gap.startswith("partition 0: began anew after it was lost or merged")


def test_an_error_names_three_partitions_and_counts_the_others() -> None:
    resume = find_resume_point(tuple(Position(1, 4) for _ in range(5)), [bounds(1, 10, 50)] * 5)
    assert resume.gap.count("6 events, from number 4 on") == 3
    assert resume.gap.endswith("; and 2 more partitions, 30 events in all")


# --- checkpoints ----------------------------------------------------------------------------------------------------

OFFSETS = Offsets("phalanx", "flights", (Position(8, 18), Position(9, 0)), 3, (Position(8, 1), Position(9, 0)))


def test_offsets_go_through_a_checkpoint() -> None:
    text = json.dumps(OFFSETS.to_json())
    assert read_offsets(json.loads(text), "it") == OFFSETS
    assert '"partitions": {"0": {"lineage": 8, "next": 18}' in text


def test_a_start_is_a_word_or_offsets_without_the_batch_that_they_ended() -> None:
    assert start_word(parse_start("Latest")) == "latest"
    found = parse_start(json.dumps(OFFSETS.to_json()))
    assert start_word(found) is None
    assert read_offsets(found, "it") == Offsets("phalanx", "flights", OFFSETS.positions, 3)
    assert positions_at("earliest", [bounds(4, 2, 5)]) == (Position(4, 2),)
    assert positions_at("latest", [bounds(4, 2, 5)]) == (Position(4, 5),)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("now", "option 'startingOffsets': 'now' is neither earliest, nor latest, nor the JSON of offsets"),
        ("[1]", "is neither earliest, nor latest, nor the JSON of offsets"),
        ("{}", "option 'startingOffsets' is not a position in a map's changes (KeyError: 'cluster'): it looks like {"),
        (
            '{"cluster": "c", "map": "m", "partitions": {"1": {"lineage": 8, "next": 18}}}',
            "partitions are numbered 0, 1, 2, ..., and these are [1]",
        ),
        ('{"cluster": "c", "map": "m", "partitions": {"0": 7}}', "is not a position in a map's changes (TypeError"),
    ],
)
def test_a_start_that_is_none_is_refused_with_what_one_looks_like(text: str, told: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_start(text)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("cluster", "name", "count", "told"),
    [
        ("phalanx", "boats", 2, "is of the map 'flights' in the cluster 'phalanx', but the options name 'boats'"),
        ("other", "flights", 2, "but the options name 'flights' in 'other'"),
        ("phalanx", "flights", 4, "counts 2 partitions, and the cluster 'phalanx' has 4"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(cluster: str, name: str, count: int, told: str) -> None:
    check_same(OFFSETS, "phalanx", "flights", 2)
    with pytest.raises(UsageError) as error:
        check_same(OFFSETS, cluster, name, count)
    assert told in str(error.value)
