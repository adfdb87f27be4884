"""Clusters in the hands of a test that fall apart, write on both sides, and come together again."""

from typing import Any

from phalanx.codec.hashing import partition_of
from phalanx.common.map_settings import MapChange
from phalanx.wire import messages as m

from .harness import MAP, TEXT, Cluster, key_of

COUNT = 5
"""Partitions."""


def cluster(names: str, **settings: Any) -> Cluster:
    c = Cluster(names, **({"partition_count": COUNT} | settings))
    c.advance(2_000)
    return c


def partition_at(c: Cluster, name: str, key: bytes) -> int:
    return partition_of(key, c.table(name).partition_count)


def put(c: Cluster, name: str, key: bytes, value: bytes, map_name: str = MAP) -> None:
    """Store a value by way of a member; it is confirmed."""
    request = c.call(name, m.Put, map_name, key, TEXT + value, 0, partition=partition_at(c, name, key))
    c.settle()
    if not c.is_done(request):
        c.advance(500)
    assert c.is_done(request), c.replies.get(request)


def remove(c: Cluster, name: str, key: bytes, map_name: str = MAP) -> None:
    request = c.call(name, m.Remove, map_name, key, partition=partition_at(c, name, key))
    c.settle()
    assert c.is_done(request)


def read(c: Cluster, name: str, key: bytes, map_name: str = MAP) -> bytes | None:
    request = c.call(name, m.Get, map_name, key, partition=partition_at(c, name, key))
    c.settle()
    reply = c.replies[request]
    assert isinstance(reply, m.ValueReply), reply
    return reply.value[len(TEXT) :] if reply.value is not None else None


def keys(count: int) -> list[bytes]:
    """Some in each partition."""
    return [key_of(number % COUNT, COUNT, number // COUNT) for number in range(count)]


def split(c: Cluster, one: str, other: str) -> None:
    for name in one:
        for far in other:
            c.cut(name, far)
    c.advance(30_000)
    for side in (one, other):
        assert {"".join(sorted(view)) for view in c.views_of(side)} == {side}


def rejoin_all(c: Cluster) -> None:
    for name in [name for name in sorted(c.finished) if name not in c.nodes and c.finished[name].rejoin]:
        c.rejoin(name)


def heal(c: Cluster, seconds: int = 40) -> None:
    c.cuts.clear()
    for _ in range(seconds):
        c.advance(1_000)
        rejoin_all(c)


def kept(c: Cluster, names: str) -> list[int]:
    return [c.nodes[name].data_merging.orphaned.entry_count() for name in names]


def replicas_agree(c: Cluster, names: str) -> bool:
    """Whether every replica of each partition holds the same stored bytes as its owner."""
    held: dict[int, list[object]] = {}
    for name in names:
        grid = c.nodes[name].grid
        for owned in grid.ownership.all_owned():
            held.setdefault(owned.number, []).append({n: s.entries for n, s in owned.replica.maps.items() if s.entries})
        for number, replica in grid.follower.replicas.items():
            held.setdefault(number, []).append({n: s.entries for n, s in replica.maps.items() if s.entries})
    return all(each == of_partition[0] for of_partition in held.values() for each in of_partition)


def meet(c: Cluster, losers: str) -> None:
    """Heal the cut and let the losing side give up its cluster; none of it has come back yet."""
    c.cuts.clear()
    for _ in range(60):
        if all(name in c.finished for name in losers):
            return
        c.advance(500)
    raise AssertionError("the losing side has not given up")


def go_on(c: Cluster, seconds: int = 30) -> None:
    for _ in range(seconds):
        c.advance(1_000)
        rejoin_all(c)


def clear(c: Cluster, name: str, map_name: str = MAP) -> None:
    """Clear a map by way of a member."""
    table = c.table(name)
    requests = [
        c.call(name, m.ClearPartitions, map_name, [partition], table.partition_count, partition=partition)
        for partition in range(table.partition_count)
    ]
    c.advance(500)
    assert all(c.is_done(request) for request in requests)


def choose_policy(c: Cluster, policy: str) -> None:
    """The master gives all maps a merge policy."""
    name = c.master(next(iter(c.nodes)))
    c.nodes[name].coordinator.change_map(MAP, MapChange(merge_policy=policy), c.now)
    c.advance(1_000)
