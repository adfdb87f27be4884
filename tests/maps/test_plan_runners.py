"""What runs plans, blocking and with asyncio, beside what plays them without any I/O."""

import asyncio
from typing import Any, TypeVar

import pytest

from phalanx.client.blocking.plan_runner import run_plan as run_blocking
from phalanx.codec.compact import from_any_data
from phalanx.common.errors import ErrorCode, UnavailableError, UnknownSchema, UsageError
from phalanx.common.ids import Lost
from phalanx.common.table import PartitionTable
from phalanx.maps.async_plan_runner import run_plan as run_in_loop
from phalanx.maps.call_plans import CallPlan
from phalanx.maps.compact_schemas import read_again
from support.played_cluster import PlayedCluster, keys_in, plans_of, table

T = TypeVar("T")
ABC = table("A", "B", "C")
KEYS = [keys_in(partition, 3, 1)[0] for partition in (2, 0, 1)]


class LoopCluster:
    """The same cluster, as the asyncio client has it."""

    def __init__(self, played: PlayedCluster) -> None:
        self.played = played
        self.call_timeout_s = played.call_timeout_s
        self.open_from = 0
        self.next_id = played.next_id
        self._asked: list[str] = []
        self._is_new_round = True

    @property
    def partition_count(self) -> int:
        return self.played.known.partition_count

    async def _reply(self, partition: int, request: Any) -> Any:
        if self._is_new_round:
            self._is_new_round = False
            self.played.before_round(len(self.played.rounds))
            self._asked = []
            self.played.rounds.append(self._asked)
        return self.played.answer(partition, request, self._asked)

    def call(self, partition: int, request: Any, *, within_ms: int = 0, lost: Lost = ()) -> Any:
        return self._reply(partition, request)

    async def table(self) -> PartitionTable:
        self._is_new_round = True
        return self.played.known

    async def refresh(self, within_s: float) -> None:
        self.played.refresh(within_s)


def played(cluster: PlayedCluster, plan: CallPlan[T]) -> T:
    return cluster.play(plan)


def blocking(cluster: PlayedCluster, plan: CallPlan[T]) -> T:
    return run_blocking(plan, cluster)  # type: ignore[arg-type]


def in_loop(cluster: PlayedCluster, plan: CallPlan[T]) -> T:
    return asyncio.run(run_in_loop(plan, LoopCluster(cluster)))


@pytest.mark.parametrize("runner", [blocking, in_loop])
def test_both_runners_do_what_a_plan_asks_for(runner: Any) -> None:
    seen = []
    for run in (played, runner):
        cluster = PlayedCluster(ABC, KEYS)
        cluster.refusals["B"] = ErrorCode.NOT_OWNER

        def change(number: int, cluster: PlayedCluster = cluster) -> None:
            if number == 2:
                cluster.refusals.clear()
                cluster.table = table("A", "A", "C", version=2)

        cluster.before_round = change
        result = run(cluster, plans_of(cluster).get_data(KEYS))
        seen.append((result, cluster.rounds, [each for each in cluster.waits if each != "pause"]))
    assert seen[0] == seen[1]
    assert seen[0][0] == [b"value of " + key for key in KEYS]


@pytest.mark.parametrize("runner", [blocking, in_loop])
def test_both_runners_raise_what_a_plan_raises(runner: Any) -> None:
    cluster = PlayedCluster(ABC, KEYS)
    cluster.refusals["B"] = ErrorCode.INVALID
    with pytest.raises(UsageError, match="get_all: B says no"):
        runner(cluster, plans_of(cluster).get_data(KEYS))


class NoTable(PlayedCluster):
    """A cluster that nobody can reach: the steps of a plan themselves fail."""

    def partition_table(self) -> PartitionTable:
        raise UnavailableError("no table; calling again is safe")

    @property
    def known(self) -> PartitionTable:
        return self.partition_table()

    @known.setter
    def known(self, table: PartitionTable) -> None: ...


@pytest.mark.parametrize("runner", [blocking, in_loop])
def test_both_runners_give_a_plan_the_errors_of_its_steps(runner: Any) -> None:
    """A schema is fetched for a value that a write has returned, which must not be repeated."""
    data = (-55).to_bytes(4, "big", signed=True) + bytes(8)
    cluster = NoTable(ABC)
    lacking = UnknownSchema(0, "it is not known")
    with pytest.raises(
        UnknownSchema, match=r"no table; calling again is safe\); the call itself was carried out, so only read again"
    ):
        runner(cluster, read_again(cluster, "m", lacking, lambda: from_any_data(data)))
    with pytest.raises(UnavailableError, match="no table"):
        runner(cluster, plans_of(cluster).get_data(KEYS))
