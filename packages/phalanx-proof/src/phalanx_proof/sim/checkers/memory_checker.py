"""Checks how members account for their memory.

* Between two measurements a member has counted at least as much as it has grown by: so no burst overruns a limit.
* At rest the size that it has counted is that of what it holds.
* Reads and removals are never refused for want of memory.

That a write which was refused has changed nothing, the data checker judges, as of all writes that failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from phalanx.common.errors import ErrorCode
from phalanx.common.ids import MemberId, Millis
from phalanx.node.node import Node
from phalanx_proof.sim.checkers.checker import Checker
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.history.operations import Operation

NEVER_REFUSED = frozenset({"get", "get_all", "remove", "read_counter"})


class _Seen(NamedTuple):
    held: int
    taken: int
    partitions: int
    is_split: bool


class MemoryChecker(Checker):
    """Looks at each member when it is measured."""

    def __init__(self, findings: Findings, bytes_held: Callable[[Node], int]) -> None:
        """`bytes_held`: returns the size of what a member holds, counted from outside."""
        self._findings = findings
        self._bytes_held = bytes_held
        self._seen: dict[MemberId, _Seen] = {}
        self._refused = 0
        """Writes that were refused for want of memory."""
        self._checked = 0

    def counts(self) -> dict[str, int]:
        return {"refused for want of memory": self._refused, "measurements looked at": self._checked}

    def on_measured(self, node: Node, held: int, now: Millis) -> None:
        """Check what a member has counted since it was measured last."""
        before = self._seen.get(node.this)
        grid = node.grid
        seen = _Seen(held, grid.memory.taken, len(grid.ownership.owned), bool(grid.follower.undivided))
        self._seen[node.this] = seen
        # A division makes several replicas of one: some entries are in two for a moment.
        if before is None or before.partitions != seen.partitions or before.is_split or seen.is_split:
            return
        self._checked += 1
        grown, counted = seen.held - before.held, seen.taken - before.taken
        if grown > counted:
            story = f"{node.this} has grown by {grown} bytes and counted {counted}"
            self._findings.add(now, "a member counts what it takes", story)

    def on_refusal(self, operation: Operation, code: ErrorCode) -> None:
        """Check a call that was refused."""
        if code is ErrorCode.GRID_FULL:
            self._refused += 1
            if operation.kind in NEVER_REFUSED:
                self._findings.add(operation.end, "reads and removals need no memory", repr(operation))

    def check_at_rest(self, joined: list[Host], now: Millis) -> None:
        """Compare what members have counted with what they hold."""
        for node in [host.running_node for host in joined]:
            held, counted = self._bytes_held(node), node.grid.memory.data.size.held
            if held != counted:
                story = f"{node.this} holds {held} bytes, and has counted {counted}"
                self._findings.add(now, "the size of data is exact at rest", story)
