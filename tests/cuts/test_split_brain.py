"""The five-node split of the split brain pattern, with data, a client on each side, and protected maps."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from cuts.conftest import Start
from cuts.machines import LocalClient, Machines
from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_data
from phalanx.common.errors import NotEnoughMembers
from phalanx.common.map_settings import MapChange, Protection
from support.processes import wait_for

pytestmark = [pytest.mark.cuts, pytest.mark.timeout(400)]

NODES = "athens byzantium cyrene delphi euphesus"
MAJORITY, MINORITY = "athens delphi euphesus", "byzantium cyrene"
HEALED = "? " + NODES


def split(machines: Start, **settings: Any) -> Machines:
    """Five members with the names of the reference, by age."""
    return machines(5, names=NODES, **settings)


def cut(m: Machines) -> None:
    """Athens and Byzantium each go on as the coordinator of their side."""
    m.cut(MAJORITY, MINORITY)
    m.wait_lists({MAJORITY: MAJORITY, MINORITY: MINORITY})
    for side in (MAJORITY, MINORITY):
        m.wait_whole(side)


def heal(m: Machines) -> None:
    """The smaller side joins the larger one as younger members."""
    m.heal()
    m.wait_lists({m.everybody: HEALED})
    order = m.list_of("athens").split()
    assert " ".join(order[:3]) == MAJORITY
    m.wait_whole(m.everybody)
    m.wait_merged(MINORITY)
    m.judge()


def later() -> None:
    """The members' clocks agree to some milliseconds: what follows is later by all of them."""
    until = time.monotonic() + 0.1
    wait_for(lambda: time.monotonic() >= until, "time passes")


def differences(found: dict[str, Any], expected: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What is found at keys and what is expected there, where that is not the same; None: nothing."""
    keys = sorted(found.keys() | expected.keys())
    return {key: (found.get(key), expected.get(key)) for key in keys if found.get(key) != expected.get(key)}


def numbered(name: str, count: int = 40) -> list[str]:
    return [f"{name}-{number}" for number in range(count)]


class Sides:
    """A client on each side, what they write, and what must be there in the end."""

    def __init__(self, here: LocalClient, there: LocalClient, old: list[str]) -> None:
        self.here, self.there = here, there
        self.expected: dict[str, Any] = dict.fromkeys(old, "old")
        here.call("m", "put_all", self.expected)

    def write(self, side: str, keys: list[str]) -> None:
        """Write what names the side."""
        for key in keys:
            getattr(self, side).call("m", "put", key, side)
            self.expected[key] = side

    def remove(self, side: str, keys: list[str]) -> int:
        """Remove; how many were there. A side that has lost all replicas of a partition has nothing to remove in it."""
        found = [key for key in keys if getattr(self, side).call("m", "remove", key) is not None]
        for key in found:
            del self.expected[key]
        return len(found)

    def check(self) -> None:
        """Both clients read what must be there, and nothing else."""
        for client in (self.here, self.there):
            found = differences(client.items("m"), self.expected)
            assert not found, repr(found)


@contextlib.contextmanager
def sides(m: Machines, old: list[str]) -> Iterator[Sides]:
    """Clients from before the cut, which holds when this begins; `old` was there before."""
    with m.client("athens") as here, m.client("byzantium") as there:
        made = Sides(here, there, old)
        m.wait_whole(m.everybody)
        cut(m)
        yield made


@pytest.mark.rows("EL-47", "EL-61")
def test_two_sides_write_and_become_one_cluster_that_has_it_all(machines: Start) -> None:
    """{athens, delphi, euphesus} | {byzantium, cyrene}: of each key the newest write counts."""
    m = split(machines)
    both = numbered("both")
    with sides(m, [*numbered("before", 100), *both]) as s:
        s.write("here", [*numbered("here"), *both[:20]])
        later()
        s.write("there", [*numbered("there"), *both])
        later()
        s.write("here", both[20:])
        heal(m)
        s.check()
    conflicts = [event for name in m.everybody.split() for event in m.events(name, "MergeConflicts")]
    assert {event["policy"] for event in conflicts} == {"latest-update"}
    assert sum(event["count"] for event in conflicts) >= len(both)


@pytest.mark.long
def test_what_was_removed_on_either_side_stays_removed(machines: Start) -> None:
    m = split(machines, backup_count=2)  # so that the side of three has replicas of everything
    here, there, crossed = numbered("removed here"), numbered("removed there"), numbered("written there, removed here")
    with sides(m, [*numbered("before"), *here, *there]) as s:
        assert s.remove("here", here) == len(here)
        assert s.remove("there", there) > len(there) // 4
        later()
        s.write("there", [*here[:10], *crossed])
        later()
        s.write("here", crossed)
        assert s.remove("here", crossed) == len(crossed)
        s.there.call("cleared", "put_all", dict.fromkeys(numbered("there"), "there"))
        # In every partition: what is not there is not cleared, and says nothing to the other side.
        s.here.call("cleared", "put_all", dict.fromkeys(numbered("here", 300), "here"))
        later()
        s.here.call("cleared", "clear")
        later()
        s.there.call("cleared", "put", "after", "there")
        heal(m)
        s.check()
        assert s.here.items("cleared") == {"after": "there"}


@pytest.mark.long
def test_a_write_that_was_on_its_way_when_the_cut_came_does_not_come_when_it_is_healed(machines: Start) -> None:
    """Its caller was answered by the owner on its own side, and has written anew since."""
    m = split(machines)

    with m.client("athens") as blocking:
        blocking.call("m", "put_all", dict.fromkeys(numbered("k", 100), "old"))
        m.wait_whole(m.everybody)
        rows = m.rows_of("athens")
        keys = [next(key for key in numbered("k", 100) if owner_of(key, rows) == owner) for owner in MINORITY.split()]

        async def write() -> None:
            """Each client sends its first write to an owner that does not get it any more."""
            async with m.connect() as grid:
                await grid.map("m").get_all(keys)
                m.cut(MAJORITY, MINORITY)
                first = asyncio.create_task(grid.map("m").put(keys[0], "first"))
                await asyncio.sleep(0)
                for value in ("first", "second"):
                    blocking.call("m", "put", keys[1], value)
                await first
                await grid.map("m").put(keys[0], "second")
                m.wait_lists({MAJORITY: MAJORITY, MINORITY: MINORITY})
                heal(m)
                assert await grid.map("m").get_all(keys) == dict.fromkeys(keys, "second")

        with m.on_host("athens"):
            asyncio.run(write())
        assert blocking.items("m") == dict.fromkeys(numbered("k", 100), "old") | dict.fromkeys(keys, "second")


def owner_of(key: str, rows: list[str]) -> str:
    return rows[partition_of(to_data(key), len(rows))].split()[0]


@pytest.mark.long
@pytest.mark.rows("EL-61")
def test_the_policy_of_a_map_says_what_becomes_of_what_the_smaller_side_wrote(machines: Start) -> None:
    m = split(machines, backup_count=2)
    policies = ("latest-update", "put-if-absent", "discard", "pass-through")
    for policy in policies:
        m.change_map("athens", policy, MapChange(merge_policy=policy))
    with m.client("delphi") as here, m.client("cyrene") as there:
        for name in policies:
            here.call(name, "put_all", dict.fromkeys(numbered("k", 100), "old"))
        m.wait_whole(m.everybody)
        cut(m)
        for name in policies:
            there.call(name, "put_all", {"first there": "there", "there alone": "there"})
            later()
            here.call(name, "put_all", {"first there": "here", "first here": "here", "here alone": "here"})
            later()
            there.call(name, "put", "first here", "there")
        heal(m)
        news = ("here alone", "there alone", "first here", "first there")
        merged = {name: [here.call(name, "get", key) for key in news] for name in policies}
        assert merged == {
            "latest-update": ["here", "there", "there", "here"],
            "put-if-absent": ["here", "there", "here", "here"],
            "discard": ["here", None, "here", "here"],
            "pass-through": ["here", "there", "there", "there"],
        }
        assert {name: there.call(name, "size") for name in policies} == {
            "latest-update": 104, "put-if-absent": 104, "discard": 103, "pass-through": 104,
        }  # fmt: skip


@pytest.mark.long
@pytest.mark.rows("EL-48", "EL-50")
def test_a_protected_map_is_refused_on_the_smaller_side_only(machines: Start) -> None:
    m = split(machines)
    protections = {
        "majority": Protection(majority=True),
        "three": Protection(minimum=3),
        "writes": Protection(majority=True, reads=False),
    }
    for name, protection in protections.items():
        m.change_map("athens", name, MapChange(protection=protection))
    with m.client("athens") as here, m.client("byzantium") as there:
        entries = dict.fromkeys(numbered("k"), "old")
        for name in (*protections, "open"):
            here.call(name, "put_all", entries)
        m.wait_whole(m.everybody)
        cut(m)

        for name in protections:
            here.call(name, "put", "k-1", "here")
            for key in numbered("k", 10):
                with pytest.raises(NotEnoughMembers, match="2"):
                    there.call(name, "put", key, "there")
        for name in ("majority", "three"):
            with pytest.raises(NotEnoughMembers):
                there.call(name, "get", "k-1")
        assert {there.call("writes", "get", key) for key in numbered("k")} <= {"old", None}
        there.call("open", "put", "k-1", "there")

        heal(m)
        for name in protections:
            assert there.items(name) == entries | {"k-1": "here"}
            there.call(name, "put", "k-2", "there")
        assert here.items("open") == entries | {"k-1": "there"}
