"""Programs that store entries which expire when nobody uses them: each reads its own until it is gone.

Nobody else uses the key, and no key is stored twice; so what a read must find is known from the calls before it alone.
"""

from __future__ import annotations

from typing import Any

from phalanx.codec.hashing import partition_of
from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable
from phalanx.machine.inputs import Call
from phalanx.wire import messages as m
from phalanx_proof.sim.checkers.evidence import Evidence
from phalanx_proof.sim.checkers.idle_checker import IdleChecker, Life, Use
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.options import IDLE, IDLE_MS, HistoryOptions
from phalanx_proof.sim.workload.calls import TEXT, Workload
from phalanx_proof.sim.workload.program import CallingProgram

USERS = 2
"""On each host."""
IDLES_MS: tuple[Millis, ...] = (0, 300, 1_000, 3_000)
"""0: the idle time of the map."""
MOST_READS = 12


class IdleUsers(CallingProgram[tuple[Host, MemberId, Life, Millis]]):
    """All these programs of one history. A call is remembered by who asked, for what, and when."""

    stream = "idle"

    def __init__(self, options: HistoryOptions, workload: Workload, evidence: Evidence) -> None:
        super().__init__(options, workload, evidence)
        self._lives: list[Life] = []
        self._checker = IdleChecker(evidence.findings, options.accuracy_ms)
        self._stored = 0

    def _start(self) -> None:
        for host in self._world.hosts:
            for _ in range(USERS):
                self._go_on(host, self._rng.randrange(1_000), None)

    def unmet(self) -> list[str]:
        grids = [host.running_node.grid for host in self._world.hosts if host.has_joined]
        stores = [(owned, owned.replica.maps.get(IDLE)) for grid in grids for owned in grid.ownership.all_owned()]
        return [f"{owned} holds what nobody uses" for owned, store in stores if store is not None and store.entries]

    def _go_on(self, host: Host, after_ms: Millis, life: Life | None, member: MemberId | None = None) -> None:
        """Let a program go on with an entry after a time, or begin with another."""

        def go_on() -> None:
            if not self._runs:
                return
            if host.node is None or host.table is None or not host.table.version:
                self._later(host, 200, go_on)
            elif life is None or host.member != member:
                self._store(host)
            else:
                self._ask(host, life, is_read=True)

        self._later(host, after_ms, go_on)

    def _store(self, host: Host) -> None:
        self._stored += 1
        idle_ms = self._rng.choice(IDLES_MS)
        self._ask(host, Life(TEXT + b"i%d" % self._stored, idle_ms or IDLE_MS, []), is_read=False, idle_ms=idle_ms)

    def _ask(self, host: Host, life: Life, *, is_read: bool, idle_ms: Millis = 0) -> None:
        number, member = self._workload.next_number(), host.running_node.this
        request: m.Request
        if is_read and self._rng.random() < 0.3:
            request = m.GetAll(number, IDLE, [life.key])
        elif is_read:
            request = m.Get(number, IDLE, life.key)
        else:
            open_from = self._workload.open_from(member, number)
            request = m.Put(number, IDLE, life.key, TEXT + b"v%d" % number, 0, 0, open_from, idle_ms)
            self._lives.append(life)
        partition_count = host.table.partition_count if host.table is not None else self._options.partitions
        asked = host, member, life, self._world.now
        self._call(host, member, Call(partition_of(life.key, partition_count), request), asked)

    def on_answer(self, reply: Any, replier: MemberId) -> None:
        """End a call: its program goes on, or begins with another entry if that one is gone or a call has failed."""
        host, member, life, began = self._end_call(reply.id)
        found = isinstance(reply, m.DoneReply)
        if isinstance(reply, m.ValueReply):
            found = reply.value is not None
        elif isinstance(reply, m.ValuesReply):
            found = reply.values[0] is not None
        elif not found:
            self._go_on(host, self._rng.randrange(400), None)
            return
        life.uses.append(Use(began, self._world.now, found))
        if not found or len(life.uses) > MOST_READS:
            self._go_on(host, self._rng.randrange(400), None)
            return
        # Mostly in time, now and then just in time or just too late, and in the end much too late.
        part = self._rng.choice((0.3, 0.5, 0.7, 0.9, 1.1)) if len(life.uses) < MOST_READS else 4.0
        self._go_on(host, int(part * life.idle_ms), life, member)

    def on_table(self, member: MemberId, table: PartitionTable, now: Millis) -> None:
        self._checker.on_table(member, table, now)

    def on_process_ended(self, member: MemberId) -> None:
        for host, *_ in self._end_calls(member):
            self._go_on(host, 200, None)

    def judge(self, joined: list[Host], now: Millis) -> None:
        """Judge the entries. On two sides each knows of its own uses only, and a merge brings entries at any time: then they
        need only be gone at rest."""
        if not self._options.has_sides:
            self._checker.check(self._lives, self._evidence.lost_partitions, self._options.partitions)

    def counts(self) -> dict[str, int]:
        return {"reads of idle entries": self._checker.reads, "idle entries gone": self._checker.ends}
