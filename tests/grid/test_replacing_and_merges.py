"""What a replace makes of the old content, as a merge with another side sees it: nothing of it comes back but what was
written there after the cut."""

import pytest

from phalanx.common.clock import with_stamp
from phalanx.common.hidden_maps import StagedStep
from phalanx.wire import messages as m
from support import jobs
from support.harness import MAP, TEXT, Cluster, lone_id

OLD, NEW, THERE = (TEXT + value for value in (b"old", b"new", b"there"))
KEYS = [TEXT + b"k%d" % number for number in range(10)]
FIRST, OTHER = KEYS[0], KEYS[9]
"""A key of the new content, and one that it has not."""


class MapReplacement:
    """A job of which everything but the decision is done; what happens before that is up to the test."""

    def __init__(self, ttl_ms: int = 0) -> None:
        self.c = c = Cluster("AB")
        c.assign(rows=["AB"])
        self.job = jobs.Job(c)
        self.job.stage("A", "t1", KEYS[:2], NEW, ttl_ms)
        c.settle()

    def begin(self) -> None:
        self.job.wish_until("A", m.Replacement.BEGIN)

    def prepare(self) -> None:
        self.job.ask("A", StagedStep.ASSEMBLE, "t1")
        self.c.settle()

    def decide(self) -> None:
        assert self.job.wish_until("A", m.Replacement.DECIDE).flag
        assert self.c.kept("A") == self.c.kept("B")

    def write(self, key: bytes) -> int:
        """A write that both sides have: its stamp."""
        self.c.put("A", key, OLD)
        self.c.settle()
        return int.from_bytes(self.c.kept("A")[0][key][:8], "big")

    def do(self, request: type[m.Request], *args: object) -> None:
        self.c.ask("A", request, MAP, *args)
        self.c.settle()

    def merge(self, key: bytes, stamp: int, value: bytes = OLD) -> bytes | None:
        """Another side hands in what it has of the key: what the map has then."""
        c = self.c
        version, ended = with_stamp(stamp, value), c.nodes["A"].clock.read(c.now)
        c.say("B", "A", m.MergeEntries(1, MAP, lone_id("B"), ended, [key], [version], [], [], []))
        c.settle()
        assert c.entries("A") == c.entries("B")
        return (c.entries("A") or {}).get(key)


@pytest.mark.parametrize("key", [FIRST, OTHER])
@pytest.mark.parametrize("removes", [False, True])
@pytest.mark.parametrize("is_late", [False, True])
def test_what_was_written_or_removed_since_the_job_began_comes_not_back(
    key: bytes, removes: bool, is_late: bool
) -> None:
    """`is_late`: after the new content was prepared; its stamps are older then."""
    r = MapReplacement()
    r.begin()
    if is_late:
        r.prepare()
    stamp = r.write(key)
    if removes:
        r.do(m.Remove, key)
    if not is_late:
        r.prepare()
    r.decide()
    assert r.merge(key, stamp) == (NEW if key == FIRST else None)


@pytest.mark.parametrize("key", [FIRST, OTHER])
def test_nor_does_what_was_cleared_since(key: bytes) -> None:
    r = MapReplacement()
    r.begin()
    r.prepare()
    stamp = r.write(key)
    r.do(m.ClearPartitions, [0], 1)
    r.decide()
    assert r.merge(key, stamp) == (NEW if key == FIRST else None)


def test_nor_when_the_new_value_has_ended() -> None:
    r = MapReplacement(ttl_ms=5_000)
    r.begin()
    r.prepare()
    stamp = r.write(FIRST)
    r.decide()
    r.c.advance(6_000)
    assert r.merge(FIRST, stamp) is None


@pytest.mark.parametrize("key", [FIRST, OTHER])
def test_what_the_other_side_has_written_after_that_stands(key: bytes) -> None:
    r = MapReplacement()
    r.begin()
    r.prepare()
    stamp = r.write(key)
    r.c.advance(1_000)
    r.decide()
    assert r.merge(key, stamp + 1_000, THERE) == THERE
