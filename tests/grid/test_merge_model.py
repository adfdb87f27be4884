"""Both sides of a cut write, remove, clear and read as chance has it; after healing, the data is what a model says.

The model knows what each side was told to do, and when, and each policy in its own words. It knows nothing of stamps,
replicas and batches.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest

from phalanx.grid.replica.merge_policies import POLICIES
from phalanx.wire import messages as m
from support.harness import MAP, TEXT, Cluster
from support.merges import (
    COUNT,
    choose_policy,
    clear,
    cluster,
    heal,
    kept,
    keys,
    partition_at,
    put,
    read,
    remove,
    replicas_agree,
    split,
)

pytestmark = pytest.mark.thorough

HERE, THERE = "ABC", "DE"
STEPS = 60
FOR_EVER = 1 << 60


class Known(NamedTuple):
    """What a side knows of a key."""

    at: int
    """When it was written or removed."""
    value: bytes | None
    """None: it was removed."""
    ends_at: int = FOR_EVER
    reads: int = 0
    read_at: int = 0


Side = dict[bytes, Known]


def remains(policy: str, here: Known | None, there: Known | None) -> bytes | None:
    """The value that a key has in the end."""
    if policy == "discard" or there is None:
        return here.value if here is not None else None
    if here is None:
        return there.value
    newer = max(here, there, key=lambda known: known.at)
    if policy == "put-if-absent":
        return here.value
    if None in (here.value, there.value) or policy == "latest-update" or here.at == there.at:
        return newer.value
    if policy == "pass-through":
        return there.value
    measures: dict[str, Callable[[Known], int]] = {
        "higher-hits": lambda known: known.reads,
        "latest-access": lambda known: max(known.at, known.read_at),
        "expiration-time": lambda known: known.ends_at,
    }
    measure = measures[policy]
    if measure(here) == measure(there):
        return newer.value
    return max(here, there, key=measure).value


class Play:
    """One history: a cluster, and what each of its sides is known to know."""

    def __init__(self, policy: str, seed: int) -> None:
        self.rng = Random(f"{policy}:{seed}")
        self.keys = keys(15)
        self.c: Cluster = cluster(HERE + THERE, backup_count=3)
        self.c.assign()
        choose_policy(self.c, policy)
        self.written = 0

    def act(self, member: str, side: Side, *, may_read: bool = True) -> None:
        """One operation by way of a member of a side."""
        self.c.advance(10)
        rng, key = self.rng, self.rng.choice(self.keys)
        at = self.c.now
        kind = rng.choice(("put", "put", "put", "put for a time", "remove", "remove", "clear", *("read",) * 4))
        if kind in ("put", "put for a time"):
            self.written += 1
            value = b"%s %d" % (member.encode(), self.written)
            ttl_ms = rng.randrange(10, 20) * 100_000 if kind != "put" else 0
            self._put(member, key, value, ttl_ms)
            before = side.get(key, Known(0, None))
            side[key] = Known(at, value, at + ttl_ms if ttl_ms else FOR_EVER, before.reads, before.read_at)
        elif kind == "remove":
            remove(self.c, member, key)
            if key in side and side[key].value is not None:
                side[key] = Known(at, None)
        elif kind == "clear" and rng.random() < 0.3:
            self._clear(member, side)
        elif kind == "read" and may_read and key in side and side[key].value is not None:
            assert read(self.c, member, key) == side[key].value
            side[key] = side[key]._replace(reads=side[key].reads + 1, read_at=at)

    def _put(self, member: str, key: bytes, value: bytes, ttl_ms: int) -> None:
        if not ttl_ms:
            put(self.c, member, key, value)
            return
        partition = partition_at(self.c, member, key)
        asked = self.c.call(member, m.Put, MAP, key, TEXT + value, ttl_ms, partition=partition)
        self.c.settle()
        assert self.c.is_done(asked)

    def _clear(self, member: str, side: Side) -> None:
        """Where something is in a partition, all that was written there before is cleared."""
        at = self.c.now
        clear(self.c, member)
        there = {partition_at(self.c, member, key) for key, known in side.items() if known.value is not None}
        for key in self.keys:
            if partition_at(self.c, member, key) in there:
                side[key] = Known(at, None)


@pytest.mark.rows("EL-60", "EL-61")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", POLICIES)
def test_what_remains_is_what_the_policy_says(policy: str, seed: int) -> None:
    play = Play(policy, seed)
    c = play.c
    both: Side = {}
    for _ in range(15):
        play.act(play.rng.choice(HERE + THERE), both, may_read=False)
    assert c.table("A").partition_count == COUNT
    split(c, HERE, THERE)
    here, there = dict(both), dict(both)
    for _ in range(STEPS):
        member = play.rng.choice(HERE + THERE)
        play.act(member, here if member in HERE else there)
    c.advance(100)
    heal(c)
    assert {c.view(name) for name in HERE + THERE} == {c.view("A")}
    for key in play.keys:
        expected = remains(policy, here.get(key), there.get(key))
        assert read(c, play.rng.choice(HERE + THERE), key) == expected, (key, here.get(key), there.get(key))
    assert kept(c, HERE + THERE) == [0] * 5
    assert replicas_agree(c, HERE + THERE)
