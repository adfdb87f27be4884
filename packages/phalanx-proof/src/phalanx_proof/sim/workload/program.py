"""What all kinds of programs at the members have in common: what a history asks of them, and how they call members."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Generic, TypeVar

from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable
from phalanx.machine.inputs import Call
from phalanx.wire.messages import Reply
from phalanx_proof.sim.checkers.evidence import Evidence
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.cluster.world import World
from phalanx_proof.sim.options import HistoryOptions
from phalanx_proof.sim.workload.calls import Workload


class Program:
    """All programs of one kind in one history. A kind overrides what concerns it, and has a row in `run.PROGRAMS`."""

    stream: str
    """The name of the random stream from which these programs draw."""
    settle_ms: Millis = 0
    """How long the healed cluster runs on before it is judged."""

    def __init__(self, options: HistoryOptions, workload: Workload, evidence: Evidence) -> None:
        self._options = options
        self._workload = workload
        self._evidence = evidence
        self._rng = Random(f"{self.stream}:{options.profile}:{options.seed}")
        self._runs = True
        self._world: World

    def begin(self, world: World) -> None:
        """Start the programs."""
        self._world = world
        self._start()

    def _start(self) -> None:
        """Plan the first steps."""

    def stop(self) -> None:
        """Let the programs begin nothing more."""
        self._runs = False

    def takes(self, reply: Reply) -> bool:
        """Tell whether a reply answers a call of these programs."""
        return False

    def on_answer(self, reply: Reply, replier: MemberId) -> None:
        """End a call."""

    def on_table(self, member: MemberId, table: PartitionTable, now: Millis) -> None:
        """Note that a member has installed a table."""

    def on_process_ended(self, member: MemberId) -> None:
        """End what a process did that has ended."""

    def unmet(self) -> list[str]:
        """List what still goes on in a healed cluster and must end before it is judged."""
        return []

    @property
    def is_waiting(self) -> bool:
        """Whether a call at rest is not answered yet."""
        return False

    def ask_last(self) -> None:
        """Make the calls at rest, from whose answers the history is judged."""

    def judge(self, joined: list[Host], now: Millis) -> None:
        """Judge at rest what these programs were told. `joined`: the hosts with members that are in the cluster."""

    def counts(self) -> dict[str, int]:
        """Return how often something happened to these programs."""
        return {}

    def _later(self, host: Host, after_ms: Millis, do: Callable[[], None]) -> None:
        """Let a program on a host go on after a time, and not while its host does nothing."""
        world = self._world

        def go_on() -> None:
            if host.paused_until > world.now:
                world.queue.call_at(host.paused_until + 1, go_on)
            else:
                do()

        world.queue.call_at(world.now + max(after_ms, 1), go_on)


Asked = TypeVar("Asked")
"""What a program remembers of a call."""


class CallingProgram(Program, Generic[Asked]):
    """Programs whose calls are numbered with those of the workload."""

    def __init__(self, options: HistoryOptions, workload: Workload, evidence: Evidence) -> None:
        super().__init__(options, workload, evidence)
        self._pending: dict[int, Asked] = {}
        """Number of a call under way to what was asked."""

    def _call(self, host: Host, member: MemberId, call: Call, asked: Asked) -> None:
        """Make a call at the member on a host."""
        number = call.request.id
        self._pending[number] = asked
        self._workload.others[number] = member
        self._world.feed(host, member, call)

    def takes(self, reply: Reply) -> bool:
        return reply.id in self._pending

    def _end_call(self, number: int) -> Asked:
        """Forget a call and return what was asked."""
        del self._workload.others[number]
        return self._pending.pop(number)

    def _end_calls(self, member: MemberId) -> list[Asked]:
        """Forget the calls at a member whose process has ended, and return what was asked."""
        others = self._workload.others
        ours = [number for number in self._pending if others[number] == member]
        return [self._end_call(number) for number in ours]
