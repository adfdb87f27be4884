"""Whom a hurting fault strikes: never all that serve, however whole the cluster is."""

import asyncio
from typing import Any, cast

import pytest

from phalanx_proof.chaos.cluster import ChaosCluster, ChaosPhase
from phalanx_proof.chaos.faults import ChaosFaults
from phalanx_proof.chaos.plan import ChaosFault, ChaosKind, ChaosOptions

FAULT = ChaosFault(0.0, ChaosKind.KILL, (0, 1, 2), 0.0)


class MemberUnderTest:
    is_stopped = False

    def __init__(self, name: str) -> None:
        self.name = name


class WholeCluster:
    """A cluster that is always whole. After some looks another member serves."""

    def __init__(self, serving: str, joins_later: str = "") -> None:
        self.serving = [MemberUnderTest(name) for name in serving]
        self.joins_later = joins_later
        self.looks = 0
        self.killed: list[str] = []

    async def find_missing(self) -> None:
        self.looks += 1
        if self.looks == 3:
            self.serving += [MemberUnderTest(name) for name in self.joins_later]

    def in_phase(self, *phases: ChaosPhase) -> list[MemberUnderTest]:
        return []

    def by_age(self) -> list[MemberUnderTest]:
        return self.serving

    def oldest(self) -> MemberUnderTest:
        return self.serving[0]

    def kill(self, tested: MemberUnderTest) -> None:
        self.killed.append(tested.name)


@pytest.mark.parametrize(
    ("serving", "later", "backups", "killed", "looks"),
    [
        ("A", "B", 1, ["A"], 3),  # alone until another one has joined
        ("AB", "", 1, ["A"], 1),
        ("AB", "", 3, ["A"], 1),
        ("ABCD", "", 2, ["A", "B"], 1),
    ],
)
def test_somebody_is_always_left_to_take_over(
    serving: str, later: str, backups: int, killed: list[str], looks: int
) -> None:
    cluster = WholeCluster(serving, later)
    options = ChaosOptions(backups=backups, members=backups + 2, seed=1)
    faults = ChaosFaults(cast(ChaosCluster, cast(Any, cluster)), options, lambda: 1.0, lambda text: None)
    done, victims = asyncio.run(faults._strike_when_whole(FAULT))
    assert cluster.killed == killed
    assert done.members == killed
    assert len(victims) == len(killed)
    assert cluster.looks == looks
