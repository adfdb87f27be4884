"""Programs that store entries which expire when nobody uses them: each reads its own until it is gone.

Nobody else uses the key, and no key is stored twice; so what a read must find is known from the calls before it alone.
"""

from __future__ import annotations

from random import Random
from typing import Any

from phalanx.codec.hashing import partition_of
from phalanx.common.ids import MemberId, Millis
from phalanx.machine.inputs import Call
from phalanx.wire import messages as m
from phalanx_proof.sim.checkers.idle_checker import Life, Use
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.cluster.world import World
from phalanx_proof.sim.options import IDLE, IDLE_MS, Options
from phalanx_proof.sim.workload.calls import TEXT, Workload

USERS = 2
"""On each host."""
IDLES_MS: tuple[Millis, ...] = (0, 300, 1_000, 3_000)
"""0: the idle time of the map."""
MOST_READS = 12


class IdleUsers:
    """All these programs of one history."""

    def __init__(self, options: Options, workload: Workload) -> None:
        self.lives: list[Life] = []
        self._options = options
        self._workload = workload
        self._rng = Random(f"idle:{options.profile}:{options.seed}")
        self._pending: dict[int, tuple[Host, MemberId, Life, Millis]] = {}
        """Number of a call to who asked, for what, and when."""
        self._stored = 0
        self._runs = True
        self._world: World

    def begin(self, world: World) -> None:
        self._world = world
        for host in world.hosts:
            for _ in range(USERS):
                self._later(host, self._rng.randrange(1_000), None)

    def stop(self) -> None:
        """Nobody uses anything any more."""
        self._runs = False

    def unmet(self) -> list[str]:
        """List what has not expired yet in a healed cluster."""
        grids = [host.running_node.grid for host in self._world.hosts if host.has_joined]
        stores = [(owned, owned.replica.maps.get(IDLE)) for grid in grids for owned in grid.ownership.all_owned()]
        return [f"{owned} holds what nobody uses" for owned, store in stores if store is not None and store.entries]

    def _later(self, host: Host, after_ms: Millis, life: Life | None, member: MemberId | None = None) -> None:
        """Let a program go on with an entry after a time, or begin with another, and not while its host does nothing."""
        world = self._world

        def go_on() -> None:
            if not self._runs:
                return
            if host.paused_until > world.now:
                world.queue.call_at(host.paused_until + 1, go_on)
            elif host.node is None or host.table is None or not host.table.version:
                world.queue.call_at(world.now + 200, go_on)
            elif life is None or host.member != member:
                self._store(host)
            else:
                self._ask(host, life, is_read=True)

        world.queue.call_at(world.now + max(after_ms, 1), go_on)

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
            self.lives.append(life)
        self._pending[number] = host, member, life, self._world.now
        self._workload.others[number] = member
        of = host.table.partition_count if host.table is not None else self._options.partitions
        self._world.feed(host, member, Call(partition_of(life.key, of), request))

    def takes(self, reply: m.Reply) -> bool:
        """Whether it is the answer to a call of these programs."""
        return reply.id in self._pending

    def on_answer(self, reply: Any) -> None:
        """A call has ended: its program goes on, or begins with another entry if that one is gone or a call has failed."""
        host, member, life, began = self._pending.pop(reply.id)
        del self._workload.others[reply.id]
        found = isinstance(reply, m.DoneReply)
        if isinstance(reply, m.ValueReply):
            found = reply.value is not None
        elif isinstance(reply, m.ValuesReply):
            found = reply.values[0] is not None
        elif not found:
            self._later(host, self._rng.randrange(400), None)
            return
        life.uses.append(Use(began, self._world.now, found))
        if not found or len(life.uses) > MOST_READS:
            self._later(host, self._rng.randrange(400), None)
            return
        # Mostly in time, now and then just in time or just too late, and in the end much too late.
        part = self._rng.choice((0.3, 0.5, 0.7, 0.9, 1.1)) if len(life.uses) < MOST_READS else 4.0
        self._later(host, int(part * life.idle_ms), life, member)

    def on_process_ended(self, member: MemberId) -> None:
        """End the calls of a process that has ended."""
        for number in [number for number, asked in self._pending.items() if asked[1] == member]:
            host = self._pending.pop(number)[0]
            del self._workload.others[number]
            self._later(host, 200, None)
