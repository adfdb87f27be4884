"""What thousands of maps cost in one turn: counted by how many are looked at, not by time."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.common.clock import with_stamp
from phalanx.common.ids import ClientId
from phalanx.common.map_plan import MapPlan, matches
from phalanx.common.map_settings import JournalSettings, MapChange, MapSettings, Share
from phalanx.grid.replication import journal_settings as journalling
from phalanx.grid.replication.committed_offset import JournalMarks
from phalanx.grid.replication.eviction import LOOKED_AT_IN_A_TURN
from phalanx.machine.inputs import Received, TimePassed
from phalanx.wire.messages import ChangeMap, JournalReply, Put, ReadJournal
from support.harness import MAP, TEXT, Cluster, key_of

PARTITIONS = 10
MAPS = 900
KEYS = [TEXT + b"%d" % number for number in range(3)]


class Counted:
    """A member with many maps, and how often the bound of one was asked for."""

    def __init__(self) -> None:
        self.cluster = c = Cluster("A", partition_count=PARTITIONS, backup_count=0)
        c.assign()
        self.node = c.nodes["A"]
        self.looks = 0
        for owned in self.node.grid.ownership.all_owned():
            for number in range(MAPS):
                store = owned.replica.map(f"map-{number}")
                for stamp, key in enumerate(KEYS, 1):
                    store.put(key, with_stamp(stamp, TEXT + b"v"), 0, 0)
        evictor, share = self.node.grid.evictor, self.node.grid.evictor.share

        def counted(name: str) -> Share:
            self.looks += 1
            return share(name)

        evictor.share = counted  # type: ignore[method-assign]

    def change(self, name: str, **aspects: Any) -> int:
        """Change a setting; how many maps were looked at meanwhile."""
        before = self.looks
        request = ChangeMap(self.cluster.next_id(), name, MapChange(**aspects))
        self.node.handle(Received(ClientId("client/1"), request), self.cluster.now)
        return self.looks - before

    def turns(self) -> Iterator[int]:
        """Let time pass; how many maps each turn looks at, until none does."""
        while (deadline := self.node.grid.evictor.next_deadline()) is not None:
            before = self.looks
            self.cluster.advance(max(deadline - self.cluster.now, 1))
            yield self.looks - before

    def too_large(self) -> int:
        """In how many partitions and maps there are more entries than one."""
        held = [owned.replica.maps for owned in self.node.grid.ownership.all_owned()]
        return sum(len(store.entries) > 1 for maps in held for store in maps.values())


def test_a_bound_is_applied_to_thousands_of_maps_in_turns() -> None:
    counted = Counted()
    assert counted.too_large() == PARTITIONS * MAPS
    assert counted.change("map-*", max_entries=PARTITIONS) == 0, "nothing is looked at when the table comes"
    turns = list(counted.turns())
    assert max(turns) <= LOOKED_AT_IN_A_TURN
    assert len(turns) > PARTITIONS * MAPS * 2 // LOOKED_AT_IN_A_TURN
    assert counted.too_large() == 0


def test_another_maps_setting_costs_the_same_with_thousands_of_maps() -> None:
    counted = Counted()
    counted.change("map-1", max_entries=PARTITIONS)
    list(counted.turns())
    assert counted.too_large() == PARTITIONS * (MAPS - 1)
    assert counted.change("other", merge_policy="discard") == 0
    turns = list(counted.turns())
    assert max(turns) <= LOOKED_AT_IN_A_TURN
    assert sum(turns) == PARTITIONS * MAPS, "each is looked at once"


# --- settings of one map among many --------------------------------------------------------------------------------


def slow_twin(plan: MapPlan, name: str) -> MapSettings:
    """All that matches, what is nearest last."""
    matching = [(pattern == name, len(pattern), change) for pattern, change in plan.maps if matches(pattern, name)]
    settings = plan.usual
    for _, _, change in sorted(matching, key=lambda each: each[:2]):
        settings = settings.with_change(change)
    return settings


NAMES = st.text("ab*", min_size=1, max_size=5)


@given(
    st.dictionaries(NAMES.filter(lambda name: name != "*"), st.integers(1, 100), max_size=8),
    st.lists(NAMES, min_size=1),
)
def test_settings_are_found_by_the_name_and_its_beginnings(bounds: dict[str, int], names: list[str]) -> None:
    plan = MapPlan()
    for name, bound in bounds.items():
        policy = "discard" if bound % 3 else None
        plan = plan.with_change(name, MapChange(max_entries=bound, merge_policy=policy))
    for name in [*names, *bounds, MAP]:
        assert plan.of(name) == slow_twin(plan, name)


# --- journals -------------------------------------------------------------------------------------------------------


def with_journals(count: int) -> tuple[Cluster, Any]:
    """A member with journals of so many maps in each partition."""
    c = Cluster("A", partition_count=PARTITIONS, backup_count=1)
    c.assign()
    node = c.nodes["A"]
    for number in range(count):
        node.coordinator.change_map(f"map-{number:03}", MapChange(journal=JournalSettings(10)), c.now)
    c.feed("A", TimePassed())
    assert all(len(owned.replica.journals) == count for owned in node.grid.ownership.all_owned())
    return c, node


def test_another_maps_setting_costs_the_same_with_hundreds_of_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    c, node = with_journals(300)
    followed: list[str] = []
    marks: list[int] = []
    follow, begin = journalling._follow, JournalMarks.__init__

    def noted_follow(*args: Any) -> None:
        followed.append(args[2])
        follow(*args)

    def noted_begin(*args: Any) -> None:
        marks.append(1)
        begin(*args)

    monkeypatch.setattr(journalling, "_follow", noted_follow)
    monkeypatch.setattr(JournalMarks, "__init__", noted_begin)

    def change(name: str, **aspects: Any) -> None:
        request = ChangeMap(c.next_id(), name, MapChange(**aspects))
        node.handle(Received(ClientId("client/1"), request), c.now)

    change("map-007", max_entries=1_000)
    change("other", merge_policy="discard")
    assert (followed, marks) == ([], [])
    change("map-007", journal=JournalSettings(20))
    change("another", journal=JournalSettings(5))
    assert followed == ["map-007"] * PARTITIONS + ["another"] * PARTITIONS
    journals = [owned.replica.journals for owned in node.grid.ownership.all_owned()]
    assert {(each["map-007"].capacity, each["another"].capacity, len(each)) for each in journals} == {(20, 5, 301)}
    change("map-008", journal=JournalSettings())
    assert {len(each) for each in journals} == {300}


def test_an_acknowledgement_looks_at_the_journals_that_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    c, node = with_journals(300)
    c.join("B")
    c.advance(2_000)
    assert all(owned.is_settled and owned.streams for owned in node.grid.ownership.all_owned())
    forgotten: list[int] = []
    forget = JournalMarks.forget

    def noted_forget(marks: JournalMarks, seq: int) -> None:
        forgotten.append(seq)
        forget(marks, seq)

    monkeypatch.setattr(JournalMarks, "forget", noted_forget)
    partition = 3
    for number in range(20):
        name = f"map-{number % 2:03}"
        asked = c.call("A", Put, name, key_of(partition, PARTITIONS, number), TEXT + b"v", 0, partition=partition)
        c.settle()
        assert c.is_done(asked)
    assert len(forgotten) <= 80
    asked = c.call("A", ReadJournal, "map-000", partition, PARTITIONS, 0, 0, 100, 10_000, partition=partition)
    c.settle()
    assert len(c.reply(asked, JournalReply).keys) == 10
