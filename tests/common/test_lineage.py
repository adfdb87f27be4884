"""Whether one replica is a prefix of another one: they have one write of the same number, epoch and owner in common (W2, DU-35)."""

from __future__ import annotations

import pytest

from phalanx.common.lineage import MAX_EPOCHS, LeaderEpoch, Lineage, find_epoch, followed, has_write, is_prefix

A1, B2 = LeaderEpoch(1, "A", 0), LeaderEpoch(2, "B", 10)
LINEAGE = (A1, B2)


def test_an_epoch_in_which_nothing_was_written_is_not_kept() -> None:
    assert followed((), 1, "A", 0) == (A1,)
    assert followed((A1,), 2, "B", 10) == LINEAGE
    assert followed(LINEAGE, 3, "C", 10) == (A1, LeaderEpoch(3, "C", 10))


def test_the_latest_epochs_are_kept() -> None:
    lineage: Lineage = ()
    for epoch in range(1, MAX_EPOCHS + 3):
        lineage = followed(lineage, epoch, "A", epoch - 1)
    assert len(lineage) == MAX_EPOCHS
    assert lineage[0].epoch == 3
    assert find_epoch(lineage, 2) is None  # made in an epoch that is forgotten
    assert find_epoch(lineage, 3) == lineage[0]


@pytest.mark.parametrize(
    ("number", "epoch", "leader", "expected"),
    [
        (1, 1, "A", True),
        (10, 1, "A", True),
        (11, 1, "A", False),
        (11, 2, "B", True),
        (12, 2, "B", True),
        (13, 2, "B", False),
        (11, 2, "X", False),
        (11, 3, "B", False),
    ],
)
def test_a_write_is_there_if_it_was_made_in_the_same_epoch(
    number: int, epoch: int, leader: str, expected: bool
) -> None:
    assert has_write(LINEAGE, 12, number, epoch, leader) is expected


@pytest.mark.rows("DU-35")
@pytest.mark.parametrize(
    ("lineage", "seq", "expected"),
    [
        ((), 0, True),
        ((A1,), 7, True),
        ((A1,), 10, True),
        ((A1,), 11, False),
        (LINEAGE, 12, True),
        (LINEAGE, 13, False),
        ((A1, LeaderEpoch(2, "C", 10)), 10, True),
        ((A1, LeaderEpoch(2, "C", 10)), 11, False),
        ((LeaderEpoch(1, "X", 0),), 7, False),
        ((), 7, False),
    ],
)
def test_a_replica_is_a_prefix_if_its_last_write_is_there(lineage: Lineage, seq: int, expected: bool) -> None:
    assert is_prefix(lineage, seq, LINEAGE, 12) is expected
