"""Simulated upgrades: members of the released core and of this tree's in one history, under load and faults.

`./run simulate --seeds 0:300 --profile failover --canary tests.support.upgrading:upgrade` plays histories of any profile so; their
names in `CANARIES` are the plans by which members change. They are no bugs: nothing may be violated.
"""

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, ClassVar

import msgspec

from phalanx.common.ids import MemberId, Millis
from phalanx.common.versions import PROTOCOL_VERSION
from phalanx.common.view import MembersView
from phalanx.disk.restoring import Restoration
from phalanx.grid.merge.orphaned_replicas import OrphanedReplicas
from phalanx.grid.merge.sender import MergeBatch
from phalanx.machine.effects import Effect, Finished, Record
from phalanx.machine.inputs import Input, LeaveWanted
from phalanx.node.node import Node
from phalanx_proof.sim import inspection
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.cluster.observer import Observer
from phalanx_proof.sim.cluster.world import World
from phalanx_proof.sim.fault import FaultKind
from phalanx_proof.sim.options import HistoryOptions
from phalanx_proof.sim.planted_bug import PlantedBug

from .released import PROTOCOL, ReleasedNode, release

PLANS = ("upgrade", "rollback", "held")
"""Members are upgraded one after the other; half of them, back, and then all; the same, and no master raises by itself."""
RETRY_MS: Millis = 200
TOO_OLD = re.compile(r"the cluster version is \d+, and the joiner speaks protocols \d+ to \d+: start it")


class WrongVersion(Exception):
    """A view names a version that one of its members does not speak."""


class MixedWorld(World):
    """A world whose hosts change from the released core to this tree's while the history goes on."""

    seen: ClassVar[Counter[str]] = Counter()
    """What happened in all histories that this process has played: a test asserts that there was something to see."""

    def __init__(
        self, options: HistoryOptions, observer: Observer, adapt: Callable[[Node], None] | None = None, *, plan: str
    ) -> None:
        # Memory that runs out at a point of an input is planted in the parts of this tree's node.
        faults = tuple(fault for fault in options.faults if fault.kind is not FaultKind.MEMORY)
        super().__init__(msgspec.structs.replace(options, faults=faults, disks=False), observer, adapt)
        setattr(inspection, "OrphanedReplicas", (OrphanedReplicas, release().orphaned.OrphanedReplicas))  # noqa: B010
        setattr(inspection, "MergeBatch", (MergeBatch, release().sender.MergeBatch))  # noqa: B010
        self._plan = plan
        self._is_new = [False] * options.hosts
        """By host: which release its next process runs."""
        self._runs_new: dict[int, bool] = {}
        """Host to the release of the process that runs there; its next incarnations have it, too."""
        self.speaks: dict[MemberId, int] = {}
        """Every member that there ever was to the newest protocol that it speaks."""
        self._restarts: dict[int, Millis] = {}
        """Host whose member leaves for its upgrade to when it starts again after that."""
        self._refused: set[int] = set()
        """Hosts whose process is refused for its release, and is about to be replaced."""
        rng = Random(f"upgrade:{plan}:{options.profile}:{options.seed}")
        if plan == "upgrade" and rng.random() < 0.25:
            # Some hosts join with the newer release.
            self._is_new[options.members :] = [True] * (options.hosts - options.members)
        self._draw_steps(rng)

    def _draw_steps(self, rng: Random) -> None:
        """Plan who changes when: mostly in order, at a pace between far apart and all at once."""
        hosts = list(range(self.options.hosts))
        rng.shuffle(hosts)
        half = max(1, len(hosts) // 2)
        steps = [(host, True) for host in hosts]
        if self._plan != "upgrade":
            steps = [(host, True) for host in hosts[:half]] + [(host, False) for host in hosts[:half]] + steps
        duration = self.options.duration_ms
        # What is asked before the first fault is judged as if nobody ever ended.
        harmless = (FaultKind.JOIN, FaultKind.LAG, FaultKind.PAUSE, FaultKind.DISK, FaultKind.LOSE_LOG)
        first = min((f.at_ms for f in self.options.faults if f.kind not in harmless), default=duration - 1)
        begin = first + rng.randrange(max(duration - first, 8) // 4)
        end = begin + (duration - begin) * rng.choice((1, 2, 3)) // 3
        for number, (host, is_new) in enumerate(steps):
            at = begin + max(end - begin, 0) * number // len(steps)
            how = rng.choice(("leave", "leave", "crash"))
            back = rng.choice((1, 50, 400, 2_000))
            self.queue.call_at(max(at, 1), self._change, self.hosts[host], is_new, how, back)

    def _change(self, host: Host, is_new: bool, how: str, back_ms: Millis) -> None:
        """Let the process on a host end, and start with another release."""
        others = [each for each in self.hosts if each is not host and each.has_joined and not each.is_leaving]
        if host.node is not None and (not any(map(self.holds_data, others)) or host.is_leaving):
            if self.now < self.options.duration_ms:
                self.queue.call_at(self.now + RETRY_MS, self._change, host, is_new, how, back_ms)
            return
        self._is_new[host.number] = is_new
        self.seen[f"{'upgraded' if is_new else 'rolled back'} by {how}"] += 1
        if host.node is None:
            return
        if host.node.membership.is_master:
            self.seen[f"masters changed by {how}"] += 1
        if how == "crash" or not host.has_joined:
            self.crash(host, back_ms)
            return
        host.is_leaving = True
        self._restarts[host.number] = back_ms
        self.feed(host, host.node.this, LeaveWanted())

    def _new_node(
        self, host: Host, this: MemberId, after: Finished | None, restoration: Restoration | None = None
    ) -> Node:
        if after is None:
            self._runs_new[host.number] = self._is_new[host.number]
        is_new = self._runs_new[host.number]
        self.speaks[this] = PROTOCOL_VERSION if is_new else PROTOCOL
        kept, carried = (after.kept, after.carried if after.rejoin else None) if after is not None else (None, None)
        config = self.options.node_config(host.number)
        if is_new:
            config = msgspec.structs.replace(config, raise_cluster_version=self._plan != "held")
            return Node(this, config, host.wall_ms, kept=kept, carried=carried)
        return ReleasedNode(this, config, host.wall_ms, kept, carried)  # type: ignore[return-value]  # as one

    def _end_process(self, host: Host, how: str, *, delivers_all: bool) -> None:
        super()._end_process(host, how, delivers_all=delivers_all)
        back_ms = self._restarts.pop(host.number, 0)
        if back_ms and host.comes_back is None:
            host.is_leaving = False
            self.start_later(host, back_ms)

    def _carry_out(self, host: Host, node: Node, event: Input, effects: list[Effect]) -> None:
        super()._carry_out(host, node, event, effects)
        if self._runs_new.get(host.number) or host.number in self._refused:
            return
        for effect in effects:
            # A member that comes back from another side tries for ever, and says why in vain: an operator reads it.
            if isinstance(effect, Record) and TOO_OLD.search(getattr(effect.event, "reason", "")):
                self.seen["refused for their release"] += 1
                self._refused.add(host.number)
                self.queue.call_at(self.now + RETRY_MS, self._replace, host, node.this)
                return

    def _replace(self, host: Host, member: MemberId) -> None:
        """End the process of a member that is refused for its release, and start it with the newer one."""
        self._refused.discard(host.number)
        self._is_new[host.number] = True
        if host.node is not None and host.node.this == member:
            self.crash(host, RETRY_MS)

    def _finish(self, host: Host, effect: Finished) -> None:
        if effect.failed and TOO_OLD.search(effect.reason):
            # The version was raised while nobody of the older release was left: an operator upgrades this one, too.
            self.seen["refused for their release"] += 1
            self._is_new[host.number] = True
        super()._finish(host, effect)

    def _note_view(self, host: Host, node: Node, view: MembersView | None) -> None:
        super()._note_view(host, node, view)
        if view is None or self.speaks[node.this] == PROTOCOL:
            return
        speak = {self.speaks[member] for member in view.members}
        self.seen["views of members of both releases"] += len(speak) > 1
        self.seen["views at the newer version"] += view.cluster_version > PROTOCOL
        if view.cluster_version > min(speak):
            raise WrongVersion(f"{node.this} has {view}, and not all of its members speak that version")


def _world(plan: str) -> Any:
    return partial(MixedWorld, plan=plan)


CANARIES = {plan: PlantedBug(f"tests.support.upgrading:{plan}", world=_world(plan)) for plan in PLANS}
"""Name to the plan, as the command line takes it."""
