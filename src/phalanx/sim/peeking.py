"""What the members of a simulated world hold, looked at from outside."""

from __future__ import annotations

from phalanx.common.ids import MemberId
from phalanx.common.invariant import invariant
from phalanx.grid.store import Replica
from phalanx.sim.checkers.commit_checker import Held, Peek
from phalanx.sim.host import Host

OUTCOMES = "(outcomes)"
"""Instead of a map's name: the record of what became of writes."""


def member_on(host: Host) -> MemberId:
    return host.node.this  # type: ignore[union-attr]  # asked of running hosts only


def held_by(host: Host) -> tuple[tuple[int, dict[str, dict[bytes, bytes]]], ...]:
    """The partitions that a member holds, with their entries; the outcomes that it remembers as a map of their own."""
    grid = host.node.grid  # type: ignore[union-attr]  # asked of running hosts only
    replicas = [(owned.number, owned.replica) for owned in grid.all_owned()]
    replicas += list(grid.followed.replicas.items())
    invariant(not grid.followed.undivided, "at rest every partition is divided", grid=grid)
    return tuple(
        (number, {name: s.entries for name, s in replica.maps.items()} | {OUTCOMES: _remembered(replica)})
        for number, replica in replicas
    )


def peek_at(host: Host) -> Peek:
    """What a member holds at this moment, not copied."""
    node = host.node
    grid, keeper = node.grid, node.keeper  # type: ignore[union-attr]  # asked of running hosts only
    held = {number: _held_of(replica, answers=False) for number, replica in grid.followed.replicas.items()}
    held |= {
        owned.number: _held_of(owned.replica, answers=grid.owned[owned.number] is owned) for owned in grid.all_owned()
    }
    return Peek(node.membership.view, keeper.table, held)  # type: ignore[union-attr]


def _held_of(replica: Replica, *, answers: bool) -> Held:
    entries = {name: store.entries for name, store in replica.maps.items()} | {OUTCOMES: _remembered(replica)}
    return Held(replica.epoch, replica.seq, entries, answers)


def _remembered(replica: Replica) -> dict[bytes, bytes]:
    told = replica.outcomes.export()
    return {
        each.caller.encode(): repr((each.floor, sorted(zip(each.numbers, each.outcomes, strict=True)))).encode()
        for each in told
    }
