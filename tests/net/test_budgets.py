"""What may lie in buffers, by connection and in all: the accounting alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.net.budgets import RECEIVE_RATE, SMALL_FRAME_BYTES, STEP_BYTES, Backlogs, Pace, Reservations

KB = 1024
LIMIT_MS = 30_000


def backlogs() -> Backlogs[str]:
    return Backlogs(each_bytes=100, total_bytes=400)


def test_a_connection_waits_when_its_own_backlog_is_too_long() -> None:
    ours = backlogs()
    ours.note("a", 100)
    assert not ours.must_wait("a")
    ours.note("a", 101)
    assert ours.must_wait("a")
    ours.note("a", 0)
    assert not ours.must_wait("a")
    assert (ours.total, ours.connections) == (0, [])


def test_when_half_of_the_total_is_used_only_who_reads_is_served() -> None:
    ours = backlogs()
    for name in "abc":
        ours.note(name, 67)
    assert ours.total == 201
    assert all(ours.must_wait(name) for name in "abc")
    assert not ours.must_wait("reads")
    ours.note("c", 0)
    assert not ours.must_wait("a")


def test_the_largest_backlog_goes_first() -> None:
    ours = backlogs()
    for name, size in (("a", 90), ("b", 250), ("c", 60)):
        ours.note(name, size)
    assert not ours.is_over
    ours.note("c", 61)
    assert (ours.is_over, ours.largest()) == (True, "b")
    ours.note("b", 0)
    assert not ours.is_over
    assert backlogs().largest() is None


def test_what_waits_for_a_dropped_connection_counts_until_it_is_gone() -> None:
    ours = backlogs()
    ours.note("a", 300)
    ours.note("b", 150)
    assert ours.is_over
    ours.drop("a")
    assert (ours.total, ours.is_over, ours.largest()) == (450, False, "b")
    assert ours.must_wait("reads"), "nothing more is made before it is gone"
    ours.note("a", 200)  # some of it was written after all
    assert ours.total == 450
    ours.note("a", 0)
    assert (ours.total, ours.is_tight) == (150, False)
    assert not ours.must_wait("reads")


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-1, 300)), max_size=40))
def test_the_total_is_the_sum(notes: list[tuple[str, int]]) -> None:
    """-1: the connection is dropped."""
    ours = backlogs()
    sizes: dict[str, int] = {}
    dropped: set[str] = set()
    for name, size in notes:
        if size < 0:
            ours.drop(name)
            dropped |= {name} if sizes.get(name) else set()
        else:
            ours.note(name, size)
            if not size or name not in dropped:
                sizes[name] = size
                dropped -= {name}
        assert ours.total == sum(sizes.values())
        assert ours.is_tight is (ours.total > 200)
        assert ours.is_over is (sum(size for name, size in sizes.items() if name not in dropped) > 400)
        assert set(ours.connections) == {name for name, size in sizes.items() if size} - dropped


# --- frames of which a part has come ----------------------------------------------------------------------------------


def test_a_frame_without_room_waits_for_one_that_ends() -> None:
    room: Reservations[str] = Reservations(1000 * KB)
    assert room.ask("a", 600 * KB, 0)
    assert not room.ask("b", 500 * KB, 1)
    assert not room.ask("c", 300 * KB, 2)  # it would fit, and does not overtake
    assert room.ask("small", SMALL_FRAME_BYTES, 3)
    assert room.give_back("a", 4, is_whole=True) == ["b", "c"]
    assert room.used == 800 * KB
    assert room.give_back("b", 5, is_whole=False) == []
    assert room.give_back("c", 6, is_whole=True) == []
    assert room.used == 0


def test_a_frame_over_the_budget_is_taken_alone() -> None:
    room: Reservations[str] = Reservations(100 * KB)
    assert room.ask("a", 5000 * KB, 0)
    assert not room.ask("b", 90 * KB, 0)
    assert room.give_back("a", 1, is_whole=True) == ["b"]


def test_who_waits_and_goes_gives_way() -> None:
    room: Reservations[str] = Reservations(100 * KB)
    room.ask("a", 90 * KB, 0)
    room.ask("b", 5000 * KB, 0)
    room.ask("c", 70 * KB, 0)
    assert room.give_back("b", 1, is_whole=False) == []
    assert room.give_back("a", 1, is_whole=True) == ["c"]


def test_who_holds_room_keeps_a_rate_only_while_others_wait() -> None:
    room: Reservations[str] = Reservations(RECEIVE_RATE)
    room.ask("a", RECEIVE_RATE, 0)
    assert not room.is_late("a", 10 * LIMIT_MS, LIMIT_MS)
    room.ask("b", RECEIVE_RATE, 5)
    assert not room.is_late("a", LIMIT_MS + 999, LIMIT_MS)
    assert room.is_late("a", LIMIT_MS + 1000, LIMIT_MS)


def test_who_waits_does_so_as_long_as_others_finish() -> None:
    room: Reservations[str] = Reservations(100 * KB)
    for name in "abc":
        room.ask(name, 90 * KB, 0)
    assert not room.is_late("c", LIMIT_MS - 1, LIMIT_MS)
    assert room.is_late("c", LIMIT_MS, LIMIT_MS)
    room.give_back("a", LIMIT_MS - 1, is_whole=True)
    assert not room.is_late("c", LIMIT_MS, LIMIT_MS)
    room.give_back("b", LIMIT_MS, is_whole=False)
    assert not room.is_late("c", 9 * LIMIT_MS, LIMIT_MS), "it has room now"


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 400)), max_size=60), st.integers(1, 1000))
def test_room_is_never_over_the_budget_but_for_one_frame_alone_and_nobody_waits_for_nothing(
    steps: list[tuple[str, int]], budget_kb: int
) -> None:
    """Each step ends the frame of that connection, if it has one, else begins one. In the end all are served."""
    room: Reservations[str] = Reservations(budget_kb * KB)
    sizes: dict[str, int] = {}
    served: set[str] = set()
    for now, (name, size_kb) in enumerate(steps):
        if name in served:
            served.discard(name)
            del sizes[name]
            served |= set(room.give_back(name, now, is_whole=True))
        elif name not in sizes:
            sizes[name] = size_kb * KB
            if room.ask(name, sizes[name], now):
                served.add(name)
        large = [name for name in served if sizes[name] > SMALL_FRAME_BYTES]
        assert room.used == sum(sizes[name] for name in large)
        assert room.used <= budget_kb * KB or len(large) == 1
    for now in range(1000, 1010):
        for name in sorted(served):
            served |= set(room.give_back(name, now, is_whole=True))
            served.discard(name)
            del sizes[name]
    assert not sizes


# --- the pace -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("left", "needed"), [(10 * STEP_BYTES, STEP_BYTES), (100, 100), (0, 1)])
def test_a_step_is_due_in_each_time_limit(left: int, needed: int) -> None:
    pace = Pace(1000, left, 0)
    assert pace.is_kept(1000 + needed - 1, left - needed + 1, LIMIT_MS - 1, LIMIT_MS)
    assert not pace.is_kept(1000 + needed - 1, left - needed + 1, LIMIT_MS, LIMIT_MS)
    assert pace.is_kept(1000 + needed, 500, LIMIT_MS, LIMIT_MS)
    assert pace.is_kept(1000 + needed, 500, 2 * LIMIT_MS - 1, LIMIT_MS), "the next one has begun"
    assert not pace.is_kept(1000 + needed, 500, 2 * LIMIT_MS, LIMIT_MS)
