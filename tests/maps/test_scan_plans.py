"""Plans of scans, against a cluster that is played by hand: laziness, owners that change, partitions that are divided."""

import pytest

from phalanx.common.errors import UnavailableError, UsageError
from phalanx.common.table import PartitionTable
from phalanx.maps.map_plans import PACKED_PAGES_AT_ONCE
from phalanx.wire import messages as m
from support.played_cluster import LIMIT_S, PlayedCluster, plans_of, table

ABC = table("A", "B", "C")
MANY = [b"key-%d" % number for number in range(30)]


def keys_of(pages: list[m.PageReply]) -> list[bytes]:
    return [key for page in pages for key in page.keys]


def test_a_scan_asks_for_a_page_when_it_is_wanted_and_goes_on_behind_it() -> None:
    cluster = PlayedCluster(ABC, MANY)
    scan = plans_of(cluster).scan_data(range(3), 3)
    assert cluster.rounds == []
    (page,) = cluster.play(scan.next_pages()) or []
    assert cluster.rounds == [["A:0/3 behind ''"]]
    rest = cluster.read_all(scan)
    assert cluster.rounds[1] == [f"A:0/3 behind {page.keys[-1].decode()!r}"]
    assert all(len(asked) == 1 for asked in cluster.rounds)
    assert sorted(keys_of([page, *rest])) == sorted(MANY)


@pytest.mark.parametrize("at", [0, 1, 3, 6])
@pytest.mark.parametrize(
    "then", [table("B", "C", "A", version=2), table(*"ABCABC", version=2)], ids=["moved", "divided"]
)
def test_a_scan_across_a_table_change_has_each_entry_once(at: int, then: PartitionTable) -> None:
    cluster = PlayedCluster(ABC, MANY)

    def change(number: int) -> None:
        if number == at:
            cluster.table = then

    cluster.before_round = change
    found = keys_of(cluster.read_all(plans_of(cluster).scan_data(range(3), 3)))
    assert sorted(found) == sorted(MANY)
    assert cluster.waits == ["refresh"]


def test_a_packed_scan_goes_on_in_each_partition_behind_its_own_key() -> None:
    cluster = PlayedCluster(ABC, MANY)
    pages = cluster.read_all(plans_of(cluster).scan_packed(range(3), 3, 1, (), with_ttls=False))
    assert sum(len(page.key_data) for page in pages) == sum(map(len, MANY))
    assert len(cluster.rounds[1]) == 3


def test_pages_that_came_are_not_held_back_for_those_that_were_refused() -> None:
    cluster = PlayedCluster(ABC, MANY)
    cluster.page_size = len(MANY)
    cluster.table = table("A", "B", "A", version=2)
    scan = plans_of(cluster).scan_packed(range(3), 3, 1, (), with_ttls=False)
    for _ in range(2):
        assert len(cluster.play(scan.next_pages()) or []) == 1
    assert cluster.rounds == [["A:0/3 behind ''"], ["B:1/3 behind ''", "C:2/3 behind ''"]]
    assert cluster.waits == []
    assert len(cluster.play(scan.next_pages()) or []) == 1
    assert cluster.rounds[2:] == [["C:2/3 behind ''"], ["A:2/3 behind ''"]]
    assert cluster.waits == ["refresh"]
    assert cluster.play(scan.next_pages()) is None


def test_the_larger_packed_pages_are_the_fewer_are_asked_for_at_once() -> None:
    for size, most in ((1, PACKED_PAGES_AT_ONCE), (3 * 1024 * 1024, 2)):
        cluster = PlayedCluster(table(*"A" * 40))
        scan = plans_of(cluster).scan_packed(range(40), 40, 1, (), with_ttls=False)
        cluster.done = lambda request, size=size: m.PackedReply(request.id, bytes(size), b"", b"", b"", False)  # type: ignore[misc,method-assign]
        cluster.play(scan.next_pages())
        cluster.play(scan.next_pages())
        assert [len(asked) for asked in cluster.rounds] == [1, most]


def test_a_scan_by_a_newer_table_waits_for_it_and_not_for_ever() -> None:
    cluster = PlayedCluster(table("A"), MANY)
    cluster.table = table(*"AAAA", version=2)
    found = cluster.read_all(plans_of(cluster).scan_data(range(4), 4))
    assert sorted(keys_of(found)) == sorted(MANY)
    assert cluster.waits == ["refresh"]
    cluster = PlayedCluster(table("A"), MANY)
    with pytest.raises(UnavailableError, match="no member has sent a table of 4 partitions: there are 1"):
        cluster.read_all(plans_of(cluster).scan_data(range(4), 4))
    assert cluster.rounds == []
    assert cluster.now >= LIMIT_S


def test_partitions_of_another_cluster_are_refused() -> None:
    cluster = PlayedCluster(ABC)
    with pytest.raises(UsageError, match="list them again"):
        cluster.read_all(plans_of(cluster).scan_data(range(2), 2))
