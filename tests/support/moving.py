"""A partition in the middle of a migration of any kind, while clients read and write after each message.

    with Moving("OB", "DB") as moving:        # O owns, B is its backup; D has joined, and M has ordered: MOVE 0 from O to D
        moving.run(7)                         # seven messages later
        moving.crash("OM")
        moving.finish()                       # whatever there is to do is done
        moving.check()                        # nothing confirmed is lost, no read was stale, nothing is left over

M is the master and holds nothing. Owners compare nothing with their backups by themselves: what a migration leaves out
of step stays so. Who is in the second row only joins last; if nobody is, N does.
"""

import functools
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self
from unittest.mock import patch

from phalanx.common.ids import MemberId
from phalanx.common.table import Slots
from phalanx.machine.inputs import TimePassed
from phalanx.partition.assignment import Candidate, assign
from phalanx.wire import messages as m
from phalanx.wire.table_events import (
    MigrationCommitted,
    MigrationFinalized,
    MigrationRolledBack,
    MigrationStarted,
    PartitionLost,
)

from .harness import MAP, Cluster, name_of

KINDS = {
    "copy": ("O-", "OD"),
    "move the owner": ("OB", "DB"),
    "move a backup": ("OB", "OD"),
    "shift down": ("O-", "DO"),
    "shift up": ("O-B", "OBD"),
    "shift up in the place of a backup": ("OCB", "OB"),
    "shift up in the place of the owner": ("OCB", "BC"),
    "exchange": ("OB", "BO"),
    "move all": ("OB", "DN"),
    "clear": ("OB", "O"),
}
"""What happens, by the replicas before and after."""
KEYS = 3
EVERY = 5
"""Messages between two writes: one costs about four to itself and its confirmation."""


class Write(NamedTuple):
    request: int
    value: bytes


class Read(NamedTuple):
    request: int
    key: bytes
    since: int
    """How many writes of the key had been asked for up to the last one that was confirmed when this was asked."""


class Moving:
    """The cluster, and what its clients did."""

    def __init__(self, before: str, after: str, **settings: Any) -> None:
        self.before, self.after = before, after
        self.is_disturbed = False
        """Whether the master may do as it likes from now on."""
        self._dead = ""
        self._is_forgotten = False
        others = sorted(set(before) - set("O-"))
        self._newcomers = "".join(sorted(set(after) - set(before) - {"-"})) or "N"
        self._patch = patch("phalanx.partition.coordinator.eligibility.assign", self._assign)
        self._patch.start()
        usual: dict[str, Any] = {
            "backup_count": max(len(before), len(after)) - 1,
            "copy_chunk_bytes": 60,
            "anti_entropy_interval_ms": 0,
        }
        self.c = c = Cluster("".join(["M", "O", *others]), **(usual | settings))
        c.assign()
        self.keys = [c.key(0, number) for number in range(KEYS)]
        self.writes: dict[bytes, list[Write]] = {key: [] for key in self.keys}
        """Of each key, in the order in which they were asked for."""
        self._reads: list[Read] = []
        self._number = self._steps = 0
        for _ in range(2 * KEYS):
            self.write()
            c.settle()
        assert all(c.is_done(write.request) for history in self.writes.values() for write in history)
        for name in self._newcomers:
            c.start(name, seeds="M")
            c.hold_all()
        while not c.events_of("M", MigrationStarted):
            assert c.row("M") == before.rstrip("-"), c.row("M")
            self._step()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patch.stop()

    def _assign(
        self, table: Sequence[Slots], members: Sequence[Candidate[MemberId]], backup_count: int
    ) -> Sequence[Slots]:  # fmt: skip
        """In the place of `assign`: what the test wants, as long as everybody is there."""
        present = {candidate.member for candidate in members}
        names = "".join(name_of(member) for member in present)
        wishes = {self.before: "", self.after: self._newcomers} if not self.is_disturbed else {}
        for row, others in reversed(wishes.items()):
            if set(row + others) - {"-"} <= set(names):
                return [self.c.slots(row)]
        return assign(table, members, backup_count)

    # --- what happens ----------------------------------------------------------------------------------------------

    def _step(self) -> None:
        if not self.c.step():
            # What is committed is published a little later.
            self.c.now += 20
            for name in [name for name in self.c.nodes if name not in self.c.hung]:
                deadline = self.c.nodes[name].next_deadline()
                if deadline is not None and deadline <= self.c.now:
                    self.c.feed(name, TimePassed())

    def run(self, steps: int) -> None:
        """Deliver so many messages; after each, clients read from everybody, and now and then write to all owners."""
        for _ in range(steps):
            self._step()
            self.read()
            self._steps += 1
            if self._steps % EVERY == 0:
                self.write()

    def write(self) -> None:
        """The next key, at each member that takes itself for the owner."""
        self._number += 1
        key, value = self.keys[self._number % KEYS], b"\0\0\0\1%d" % self._number
        for name in self.owners():
            self.writes[key].append(Write(self.c.put(name, key, value + name.encode()), value + name.encode()))

    def read(self) -> None:
        """The key that was written longest ago, from everybody."""
        key = self.keys[(self._number + 1) % KEYS]
        since = self._confirmed(key)
        for name in [name for name in self.c.nodes if name not in self.c.hung]:
            self._reads.append(Read(self.c.ask(name, m.Get, MAP, key), key, since))

    def owners(self) -> str:
        """Who owns the partition by what it knows itself; one that waits for an outcome, too."""
        running = [name for name in self.c.nodes if name not in self.c.hung]
        return "".join(name for name in running if self.c.nodes[name].grid.ownership.owns(0))

    def crash(self, names: str, *, lose: bool = True) -> None:
        self.is_disturbed = True
        self._dead += names
        self.c.crash(names, lose=lose)

    def finish(self) -> None:
        self.c.release()
        self.c.advance(30_000)
        if not any(node.installed_table.is_assigned for node in self.c.nodes.values()):
            # Those that are left had never heard of a table.
            self._is_forgotten = True
            self.c.assign()

    # --- what must be so -------------------------------------------------------------------------------------------

    def promised(self, gone: str, *, lose: bool = True) -> bool:
        """Whether the newest row that survivors know of, or will hear of, names one of them: then nothing may be lost."""
        survivors = [name for name in self.c.nodes if name not in gone]
        heard_of = [name for name in gone if any(self.c.pending(name, to, m.MigrationAnswer) for to in survivors)]
        known = survivors + ([] if lose else heard_of)
        if not lose and self._is_to_be_cleared(gone, survivors):
            return False
        newest = max(known, key=lambda name: self.c.table(name).versions[0])
        return bool(set(self.c.replicas(newest)) & set(survivors))

    def _is_to_be_cleared(self, gone: str, survivors: Sequence[str]) -> bool:
        """Whether one of those that are gone has said that it owns the partition, so that all others may clear it."""
        said = [each for name in gone for to in survivors for each in self.c.pending(name, to, m.MigrationReady)]
        return any(each.destination == self.c.id("O") for each in said)

    def is_lost(self) -> bool:
        """Whether the partition has begun empty."""
        return self._is_forgotten or any(isinstance(event, PartitionLost) for _, event in self.c.events)

    def check(self) -> None:
        """Everything, at rest."""
        self.check_data()
        self.check_reads()
        self.check_rest()
        self.check_outcomes()

    def check_data(self) -> None:
        """Each key has its last confirmed value, or one that was written after it."""
        owner = self.c.row(next(iter(self.c.nodes)))[0]
        for key, history in self.writes.items():
            allowed = [write.value for write in history[max(self._confirmed(key) - 1, 0) :]]
            value = self.c.get(owner, key)
            assert value in allowed or (value is None and self.is_lost()), (key, value, allowed)

    def check_reads(self) -> None:
        """No read told less than what had been confirmed when it was asked."""
        for read in self._reads:
            reply = self.c.replies.get(read.request)
            if isinstance(reply, m.ValueReply) and not self.is_lost():
                allowed = [write.value for write in self.writes[read.key][max(read.since - 1, 0) :]]
                assert reply.value in allowed, (read, reply, allowed)

    def check_rest(self) -> None:
        """All have the same row, with all replicas; these are equal; nobody else has one, and nobody waits."""
        c = self.c
        wanted = min(c.settings["backup_count"] + 1, len(c.nodes))
        row = c.row(next(iter(c.nodes)))
        assert "-" not in row
        assert row == self.after or (self.is_disturbed and len(row) == wanted), row
        assert all(c.entries(name) == c.entries(row[0]) for name in row), "also before anybody writes"
        self.write()
        c.settle()
        assert c.is_done(self.writes[self.keys[self._number % KEYS]][-1].request)
        entries = c.entries(row[0])
        for name, node in c.nodes.items():
            assert c.row(name) == row
            assert c.entries(name) == (entries if name in row else None), name
            outgoing, followed = node.grid.outgoing, node.grid.follower
            assert (outgoing.active, outgoing.sealed, followed.incoming.open, followed.copies) == ({}, {}, {}, {}), name
            assert node.grid.leader.unsettled == {}, name

    def check_outcomes(self) -> None:
        """Those that took part and live have learnt the same of each migration, and what a master recorded."""
        told: dict[int, set[bool]] = {}
        for name, event in self.c.events:
            if name in self._dead or name not in self.c.nodes:
                continue
            if isinstance(event, MigrationFinalized):
                told.setdefault(event.partition_version, set()).add(event.committed)
            elif isinstance(event, MigrationCommitted | MigrationRolledBack):
                committed = isinstance(event, MigrationCommitted)
                told.setdefault(event.partition_version, set()).add(committed)
        assert all(len(outcomes) == 1 for outcomes in told.values()), told

    def _confirmed(self, key: bytes) -> int:
        """How many writes of the key were asked for up to the last one that is confirmed."""
        history = self.writes[key]
        return max((index + 1 for index, write in enumerate(history) if self.c.is_done(write.request)), default=0)


@functools.cache
def steps_of(before: str, after: str) -> int:
    """How many messages an undisturbed migration takes, until everybody knows of it."""
    with Moving(before, after) as moving:
        steps = 0
        while any(moving.c.row(name) != after for name in moving.c.nodes):
            moving.run(1)
            steps += 1
            assert steps < 500, moving.c.row("M")
        return steps
