"""The drawing of rounds: the same seed draws the same, and every kind comes."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.common.errors import UsageError
from phalanx_proof.chaos.durable.plan import CALLS, REPLACED, DurableOptions, RestartKind, draw_rounds, possible_kinds

drawn_options = st.builds(
    lambda seed, backups, more, rounds: DurableOptions(
        seed=seed, rounds=rounds, members=backups + 1 + more, backups=backups
    ),
    seed=st.integers(0, 10**9),
    backups=st.integers(0, 6),
    more=st.integers(0, 4),
    rounds=st.integers(1, 60),
)


@given(drawn_options)
def test_rounds_strike_the_members_that_there_are_and_begin_with_every_kind(options: DurableOptions) -> None:
    rounds = draw_rounds(options)
    assert rounds == draw_rounds(options)
    assert len(rounds) == options.rounds
    kinds = Counter(planned.kind for planned in rounds)
    possible = possible_kinds(options)
    assert len(kinds) == min(options.rounds, len(possible))
    assert kinds.keys() <= set(possible)
    for planned in rounds:
        assert sorted(planned.order) == list(range(options.members))
        assert planned.call in CALLS.get(planned.kind, ("",))
        assert not planned.is_replaced or planned.kind in (*REPLACED, RestartKind.DISK_ALL)
        assert bool(planned.reading_s) == (planned.kind is RestartKind.KILL_READING)
        assert planned.kind in str(planned)


@pytest.mark.parametrize(
    ("members", "backups", "missing"),
    [
        (2, 1, ""),
        (2, 0, "kill-one stop-one power-one disk-hangs disk-unreadable"),
        (1, 0, "kill-one stop-one power-one disk-hangs disk-unreadable disk-fails disk-all"),
    ],
)
def test_no_kind_takes_what_the_cluster_has_to_keep(members: int, backups: int, missing: str) -> None:
    possible = possible_kinds(DurableOptions(members=members, backups=backups))
    assert set(RestartKind) - set(possible) == set(map(RestartKind, missing.split()))


def test_another_seed_draws_other_rounds() -> None:
    assert draw_rounds(DurableOptions(seed=7)) != draw_rounds(DurableOptions(seed=8))


def test_backups_need_members() -> None:
    with pytest.raises(UsageError, match="--members 1 are too few for --backups 1: give at least 2"):
        DurableOptions(members=1)
    assert DurableOptions(members=1, backups=0).members == 1
    with pytest.raises(UsageError, match="--backups 9 is not between"):
        DurableOptions(backups=9)
