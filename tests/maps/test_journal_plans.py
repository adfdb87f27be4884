"""Plans of calls about a journal, against owners that are played by hand."""

from collections.abc import Callable
from typing import Any

import pytest

from phalanx.common.errors import (
    ErrorCode,
    JournalLineageChanged,
    JournalNotEnabled,
    PhalanxError,
    UnavailableError,
    UsageError,
)
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import JournalSettings, MapChange
from phalanx.maps.journal_plans import JournalPlans
from phalanx.maps.journals import DOUBT_S, Bounds, JournalPage, Position
from phalanx.wire import messages as m
from support.played_cluster import LIMIT_S, MAP, PlayedCluster, table

ENABLED = MapPlan(1).with_change(MAP, MapChange(journal=JournalSettings(100)))
LINEAGE = 7


def reply(request: m.ReadJournal, end: int = 3, known_to: int = 3, lineage: int = LINEAGE) -> m.JournalReply:
    return m.JournalReply(request.id, lineage, 0, end, known_to, request.sequence, [], [], [], [], [])


class Owners(PlayedCluster):
    """Two partitions, each with an owner. `answer_of` plays what the owner of a partition says at a time."""

    def __init__(self, maps: MapPlan = ENABLED) -> None:
        super().__init__(table("A", "B").with_maps(maps))
        self.plans = JournalPlans(MAP, self, lambda: self.now)
        self.answer_of: Callable[[int, m.ReadJournal], Any] = lambda partition, request: reply(request)

    def answer(self, partition: int, request: Any, asked: list[str]) -> Any:
        assert isinstance(request, m.ReadJournal)
        assert (partition, 2) == (request.partition, request.of)
        asked.append(f"{partition}")
        return self.answer_of(partition, request)


def test_bounds_wait_for_an_owner_that_does_not_know_them_as_yet_and_ask_no_other_again() -> None:
    owners = Owners()
    owners.answer_of = lambda partition, request: reply(
        request, end=-1 if partition == 1 and len(owners.rounds) < 3 else 3
    )
    bounds = Bounds(LINEAGE, 0, 3, 3)
    assert owners.play(owners.plans.bounds(None, {})) == {0: bounds, 1: bounds}
    assert owners.rounds == [["0", "1"], ["1"], ["1"]]
    assert owners.waits == ["pause", "pause"]


def test_bounds_of_a_readers_lineage_do_not_wait() -> None:
    owners = Owners()
    owners.answer_of = lambda partition, request: reply(request, end=-1, known_to=2)
    assert owners.play(owners.plans.bounds([1], {1: LINEAGE})) == {1: Bounds(LINEAGE, 0, 0, 2)}
    assert owners.rounds == [["1"]]


def test_bounds_that_nobody_knows_for_as_long_as_a_call_may_take_are_unavailable() -> None:
    owners = Owners()
    owners.answer_of = lambda partition, request: reply(request, end=-1)
    with pytest.raises(UnavailableError, match="partition 0 of map 'm' has a new owner"):
        owners.play(owners.plans.bounds(None, {}))
    assert LIMIT_S <= owners.now < LIMIT_S + 0.1


def read(owners: Owners) -> dict[int, JournalPage]:
    places = dict.fromkeys(range(2), Position(LINEAGE, 3))
    return owners.play(owners.plans.read(places, 10, owners.plans.time_limit()))


def test_only_the_partition_that_was_refused_is_asked_again() -> None:
    owners = Owners()
    refused = ErrorCode.NOT_OWNER
    owners.answer_of = lambda partition, request: (
        m.ErrorReply(request.id, refused, "moved") if partition == 1 and len(owners.rounds) < 3 else reply(request)
    )
    pages = read(owners)
    assert [page.next for page in pages.values()] == [Position(LINEAGE, 3)] * 2
    assert owners.rounds == [["0", "1"], ["1"], ["1"]]
    assert owners.waits == ["refresh", "pause"] * 2


def test_who_refuses_for_as_long_as_a_call_may_take_is_unavailable() -> None:
    owners = Owners()
    owners.answer_of = lambda partition, request: m.ErrorReply(request.id, ErrorCode.OWNERSHIP_LOST, "moved")
    with pytest.raises(UnavailableError, match="journal: moved; nothing was changed"):
        read(owners)
    assert owners.now >= LIMIT_S


def test_a_map_without_a_journal_is_named_once_a_member_was_asked_what_is_so_now() -> None:
    owners = Owners(MapPlan())
    owners.answer_of = lambda partition, request: reply(request, lineage=0)
    with pytest.raises(PhalanxError) as caught:
        read(owners)
    assert isinstance(caught.value, JournalNotEnabled)
    assert "phalanx map journal m --capacity" in str(caught.value)
    assert owners.waits == ["refresh"]


def test_an_owner_that_has_yet_to_hear_of_the_journal_is_asked_again() -> None:
    owners = Owners(MapPlan())
    owners.table = owners.known.with_maps(ENABLED)
    owners.answer_of = lambda partition, request: reply(request, lineage=0 if len(owners.rounds) == 1 else LINEAGE)
    assert len(read(owners)) == 2
    assert owners.rounds == [["0", "1"]] * 2


def test_a_reader_hears_that_its_events_did_not_last_when_the_owner_was_asked_for_a_while() -> None:
    owners = Owners()
    owners.answer_of = lambda partition, request: reply(request, known_to=1 if partition == 1 else 3)
    with pytest.raises(JournalLineageChanged, match="2 events before event 3 of partition 1"):
        read(owners)
    assert DOUBT_S <= owners.now < DOUBT_S + 0.1


@pytest.mark.parametrize("partition", [-1, 2])
def test_a_partition_that_there_is_not_is_refused_before_anybody_is_asked(partition: int) -> None:
    owners = Owners()
    with pytest.raises(UsageError, match=f"there is no partition {partition}: the cluster has 2"):
        owners.play(owners.plans.bounds([partition], {}))
    assert owners.rounds == []
