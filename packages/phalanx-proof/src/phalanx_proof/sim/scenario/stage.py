"""The simulated world that a scenario commands: fixed latency, no chance, and a hand on every message.

On top of the world's own faults (crashes, pauses, connections that break and cannot be opened again) messages can
vanish without a trace, one way too, or be held back and delivered in any order: what no connection does, but a path
through several of them, an overloaded process or a lost publication can look like.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId, Millis, Target, address_of, is_member
from phalanx.common.table import PartitionTable
from phalanx.machine.effects import Finished
from phalanx.wire.event import Event
from phalanx.wire.messages import MastershipClaim, Message, Reply
from phalanx.wire.view_events import ViewInstalled
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.checkers.view_checker import ViewChecker
from phalanx_proof.sim.cluster.host import Channel, Host
from phalanx_proof.sim.cluster.network import Network
from phalanx_proof.sim.cluster.world import World
from phalanx_proof.sim.options import SOURCES, HistoryOptions, Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.scenario.facts import Names, ScenarioFact
from phalanx_proof.sim.scenario.programs import Programs

FOREVER: Millis = 1 << 50
LATENCY_MS = 1
SETTINGS = {"partition_count": 7, "failure_detector": "deadline"}
"""Settings of members that differ from the defaults: silence ends at one known time."""
MUCH = 300
"""Most characters shown of an error that a member raised."""

Sent = tuple[str, str, str]
"""Kind of a message, and the hosts that it is from and to."""


class StageOptions(HistoryOptions, frozen=True, kw_only=True):
    """Options of a world without chance; `config` is what the next process is started with."""

    config: NodeConfig

    def node_config(self, host: int) -> NodeConfig:
        return self.config


class StageWaiting(msgspec.Struct):
    """A message that is held back."""

    channel: Channel
    message: Message


class Dropping(msgspec.Struct):
    """Messages that vanish on their way."""

    kinds: frozenset[str]
    """Empty: all."""
    ways: frozenset[tuple[str, str]]
    left: int
    """How many more; -1: all, until the scenario heals."""

    def takes(self, kind: str, way: tuple[str, str]) -> bool:
        """Tell whether this message vanishes."""
        if self.left == 0 or way not in self.ways or (self.kinds and kind not in self.kinds):
            return False
        self.left -= self.left > 0
        return True


class StageNetwork(Network):
    """A network that counts what is sent, and on whose one-way cuts no connection opens."""

    names: Names
    add_fact: Callable[[str, str, dict[str, str]], None]
    """Adds a fact: the name of its host, its kind, its fields."""

    def prepare(self, names: Names, add_fact: Callable[[str, str, dict[str, str]], None]) -> None:
        self.names, self.add_fact = names, add_fact
        self.sent: Counter[Sent] = Counter()
        self.one_way: set[tuple[str, str]] = set()
        """Ways on which everything vanishes."""
        self._asked: set[tuple[str, int, Target]] = set()

    def send(self, host: Host, to: Target, message: Message) -> None:
        way = self.names[host.address], self.names[address_of(to)]  # type: ignore[arg-type]  # there are no clients here
        self.sent[type(message).__name__, *way] += 1
        if isinstance(message, MastershipClaim):
            asked = (str(host.member), message.claim_id, to)
            if asked not in self._asked:
                self._asked.add(asked)
                self.add_fact(self.names[str(host.member)], "ClaimAsked", {"target": self.names[to]})
        super().send(host, to, message)

    def mend(self, one: Host, other: Host) -> None:
        """Let two hosts connect again."""
        self._cut_until.pop((min(one.number, other.number), max(one.number, other.number)), None)

    def process_ended(self, host: Host, *, delivers_all: bool) -> None:
        """Deliver what a process had sent, unless the scenario says otherwise."""
        super().process_ended(host, delivers_all=True)

    def _on_reached(self, channel: Channel, answered_at: Millis) -> None:
        way = self.names[channel.opener.address], self.names[channel.receiver.address]
        if channel.is_open and (way in self.one_way or way[::-1] in self.one_way):
            # To open a connection takes both ways.
            channel.is_open = False
            self._queue.call_at(answered_at, self._on_answered, channel, "no answer")
        else:
            super()._on_reached(channel, answered_at)


class Stage(World):
    """The world of one scenario."""

    network: StageNetwork

    def __init__(self, hosts: list[str]) -> None:
        drawn = draw_options(0, Profile.QUIET)
        fields = {name: getattr(drawn, name) for name in drawn.__struct_fields__}
        fields |= {
            "members": len(hosts), "hosts": len(hosts), "start_at_ms": (0,) * len(hosts), "faults": (),
            "latency_ms": (LATENCY_MS, LATENCY_MS), "timer_slack_ms": 0, "validate_every": 1,
        }  # fmt: skip
        options = StageOptions(**fields, config=NodeConfig())
        self.facts: list[ScenarioFact] = []
        self.programs = Programs()
        self.problems: list[str] = []
        """What must never happen, and did."""
        super().__init__(options, _Watch(self))
        addresses = [host.address for host in self.hosts]
        self.names = Names(hosts, addresses)
        self.network = StageNetwork(self.queue, self.hosts, options.latency_ms, self.rng)
        self.network.feed = self.feed
        self.network.prepare(self.names, self.tell)
        self.settings: dict[str, Any] = dict(SETTINGS)
        """Settings of the next process."""
        self.seeds: dict[str, tuple[str, ...]] = {}
        """Hosts that were started with seeds of their own."""
        self.finds_seeds: set[str] = set()
        """Hosts whose processes were started with a source of seeds; what it gives, the scenario says."""
        self.dropping: list[Dropping] = []
        self.holding: list[Dropping] = []
        self.held: list[StageWaiting] = []
        self.listens: Callable[[Channel, Message], bool] = lambda channel, message: True
        """Whether a message is heard at all."""
        self.findings = Findings()
        self.view_checker = ViewChecker(self.findings)
        self._drawn = 0
        self._configs: dict[str, NodeConfig] = {}
        """Host to the settings of the process that runs there."""

    # --- looking ---------------------------------------------------------------------------------------------------

    def host(self, name: str) -> Host:
        return self.hosts[self.names.hosts.index(name)]

    def name(self, host: Host) -> str:
        """Return the name of the incarnation that runs there, or of the host."""
        return self.names[host.member or host.address]

    def running(self) -> list[Host]:
        return [host for host in self.hosts if host.node is not None]

    def tell(self, who: str, kind: str, fields: dict[str, str]) -> None:
        self.facts.append(ScenarioFact(self.now, who, kind, fields))

    def seen(self, member: MemberId, event: Event) -> None:
        """Note an event that a member has recorded."""
        fields = {name: self.names.shown(getattr(event, name)) for name in event.__struct_fields__}
        self.tell(self.names[member], type(event).__name__, fields)
        if isinstance(event, ViewInstalled):
            self.view_checker.on_view(member, event, self.now)

    # --- processes -------------------------------------------------------------------------------------------------

    def start(self, host: Host, after: Finished | None = None) -> None:
        name = self.names[host.address]
        seeds: tuple[str, ...] = tuple(
            self.host(seed).address for seed in self.seeds.get(name, tuple(self.names.hosts))
        )
        if name in self.finds_seeds:
            seeds = SOURCES
        # The settings of a process hold also for the incarnation that comes after the one that has ended.
        former = self._configs.get(name) if after is not None else None
        config = self._configs[name] = former or NodeConfig(**self.settings | {"seeds": seeds})
        self.options = msgspec.structs.replace(self.options, config=config)
        super().start(host, after)

    def wake(self, host: Host) -> None:
        """End a pause."""
        if host.paused_until and host.member is not None:
            self._resume(host, host.member)

    def _draw_incarnation(self) -> str:
        self._drawn += 1
        return f"{self._drawn:08x}-0000-4000-8000-000000000000"

    # --- messages --------------------------------------------------------------------------------------------------

    def _deliver(self, host: Host, channel: Channel, what: Message | list[Message]) -> None:
        messages: list[Message] = what if isinstance(what, list) else [what]
        way = self.names[address_of(channel.sender)], self.names[host.address]
        passed = [message for message in messages if self._passes(channel, message, way)]
        if passed:
            super()._deliver(host, channel, passed if len(passed) > 1 else passed[0])

    def _passes(self, channel: Channel, message: Message, way: tuple[str, str]) -> bool:
        kind = type(message).__name__
        if way in self.network.one_way or not self.listens(channel, message):
            return False
        if any(dropping.takes(kind, way) for dropping in self.dropping):
            return False
        if any(holding.takes(kind, way) for holding in self.holding):
            self.held.append(StageWaiting(channel, message))
            return False
        return True

    def let_through(self, waiting: StageWaiting) -> None:
        """Deliver a message that was held back, unless its receiver has ended."""
        host, target = waiting.channel.receiver, waiting.channel.target
        self.held.remove(waiting)
        if host.node is not None and (not is_member(target) or host.member == target):
            super()._deliver(host, waiting.channel, waiting.message)


class _Watch:
    """The world's observer: passes on what a scenario shows."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def on_event(self, host: Host, event: Event, now: Millis) -> None:
        if host.member is not None:
            self._stage.seen(host.member, event)

    def on_table(self, host: Host, table: PartitionTable, now: Millis) -> None:
        """Tell nothing: `replicas` shows tables."""

    def on_answer(self, host: Host, reply: Reply, replier: MemberId, now: Millis) -> None:
        self._stage.programs.on_answer(reply)

    def on_last_input(self, host: Host, now: Millis) -> None:
        """Note nothing: the end of the process is told."""

    def on_process(self, host: Host, member: MemberId, what: str, now: Millis) -> None:
        stage = self._stage
        if what == "started":
            stage.names.add(member, host.incarnations)
        stage.tell(stage.names[member], "Process", {"what": what})

    def on_pause(self, host: Host, until: Millis, now: Millis) -> None:
        """Note nothing: the scenario has said so itself."""

    def on_power_cut(self, now: Millis) -> None:
        pass

    def on_log_differs(self, host: Host, why: str, now: Millis) -> None:
        """Fail the scenario: a member's log lacks something."""
        raise AssertionError(f"reading the log of {host.member} back does not give what it has in memory: {why}")

    def on_wrong_log(self, host: Host, what: str, why: str, now: Millis) -> None:
        """Fail the scenario: a property of a member's log does not hold."""
        raise AssertionError(f"{what}, and not at {host.member}: {why}")

    def on_broken(self, host: Host, error: BaseException, now: Millis) -> None:
        problem = f"{self._stage.name(host)} raised {type(error).__name__}: {str(error)[:MUCH]}"
        if problem not in self._stage.problems:
            self._stage.problems.append(problem)
