"""What membership costs and how soon it finds failures, by the number of members: `./run bench membership`.

The members are the real ones, in virtual time (`bench.many`): counts and delays are exact and the same on every
machine; only processor time is this machine's.
"""

from __future__ import annotations

import resource
import statistics
import sys
from collections.abc import Callable
from typing import Annotated

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.many import LATENCY_MS, MASTER, ManyMembers
from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId, Millis
from phalanx.wire import messages as m
from phalanx.wire.event import Event
from phalanx.wire.view_events import ViewInstalled

MOST_REAL_ALL_TO_ALL = 200
"""In larger clusters with all-to-all heartbeats only some members are real."""
REAL_OF_THEM = 20
ROOMY = 100
"""In smaller clusters each victim gets a cluster of its own; larger ones lose one after another."""
LIMIT_MS = 600_000
"""Virtual time after which a failure counts as never found."""


class Load(msgspec.Struct):
    """What members do when nothing happens; per second."""

    seconds: float
    members_measured: int
    sent: float
    received: float
    """Messages of the average member."""
    busiest: float
    master: float
    """Sent and received together, of the busiest slave and of the master."""
    bytes_sent: float
    master_bytes_sent: float
    cpu_us: float
    master_cpu_us: float


class Failures(msgspec.Struct):
    """What became of several victims of one kind; milliseconds."""

    kind: str
    found_ms: list[Millis]
    """From the failure to the decision: the removal, or the end of the claim."""
    installed_ms: list[Millis]
    """From the decision until all living members have the new view."""
    acknowledged_ms: list[Millis]
    """From the decision until the one that decided has all acknowledgements."""
    not_found: int = 0

    def rounds(self) -> float:
        """Message delays from the decision to the last acknowledgement, at most."""
        return max(self.acknowledged_ms) / LATENCY_MS


class Size(msgspec.Struct):
    """One cluster size, one way to watch."""

    members: int
    watching: str
    load: Load
    failures: list[Failures]


class Study(msgspec.Struct):
    """One run."""

    failure_detector: str
    latency_ms: Millis
    heartbeat_interval_ms: Millis
    heartbeat_timeout_ms: Millis
    sizes: list[Size]
    peak_memory_mb: int = 0


def measure_load(cluster: ManyMembers, seconds: float) -> Load:
    """Count what is sent and received while nothing fails."""
    cluster.count_from_now()
    cluster.run_for(int(seconds * 1_000))
    cluster.stop_counting()
    slaves = [number for number in cluster.living() if number != MASTER]
    busy = [cluster.sent[number] + cluster.handled[number] for number in slaves]
    return Load(
        seconds,
        len(slaves) + 1,
        sent=sum(cluster.sent[number] for number in slaves) / len(slaves) / seconds,
        received=sum(cluster.handled[number] for number in slaves) / len(slaves) / seconds,
        busiest=max(busy) / seconds,
        master=(cluster.sent[MASTER] + cluster.handled[MASTER]) / seconds,
        bytes_sent=sum(cluster.bytes_sent[number] for number in slaves) / len(slaves) / seconds,
        master_bytes_sent=cluster.bytes_sent[MASTER] / seconds,
        cpu_us=sum(cluster.cpu_s[number] for number in slaves) / len(slaves) / seconds * 1e6,
        master_cpu_us=cluster.cpu_s[MASTER] / seconds * 1e6,
    )


class _Watch:
    """Waits for the decision about one victim, and for the view without it to be everywhere."""

    def __init__(self, cluster: ManyMembers, victim: MemberId, living: int) -> None:
        self._cluster = cluster
        self._victim = victim
        self._others = living - 1
        self.decided_at: Millis | None = None
        self._version = 0
        self._installed: set[int] = set()
        self.installed_at: Millis | None = None
        self._acknowledged = 0
        self.acknowledged_at: Millis | None = None
        cluster.on_event, cluster.on_message = self._on_event, self._on_message

    def is_over(self) -> bool:
        return self.installed_at is not None and self.acknowledged_at is not None

    def _on_event(self, number: int, event: Event) -> None:
        if not isinstance(event, ViewInstalled) or self._victim in event.members:
            return
        if self.decided_at is None:
            self.decided_at, self._version = self._cluster.now, event.view_version
        self._installed.add(number)
        if len(self._installed) == len(self._cluster.living()):
            self.installed_at = self._cluster.now

    def _on_message(self, number: int, message: m.Message) -> None:
        if isinstance(message, m.MembersAck) and self.decided_at is not None and message.version >= self._version:
            self._acknowledged += 1
            if self._acknowledged == self._others:
                self.acknowledged_at = self._cluster.now


def measure_failures(make: Callable[[], ManyMembers], kind: str, victims: int) -> Failures:
    """Let members fail one by one: "hung slave", "killed slave", "hung master", "killed master".

    `make` may return a cluster that has lost members before.
    """
    found = Failures(kind, [], [], [])
    cluster = make()
    master = cluster.living()[0]
    for number in range(victims):
        if number and len(cluster.ids) <= ROOMY:
            cluster = make()
            master = cluster.living()[0]
        # Not in step with anybody's ticks, and another member each time.
        cluster.run_for(1_000 + number * 370 % 1_000)
        living = cluster.living()
        victim = master if kind.endswith("master") else living[1 + number * 7919 % (len(living) - 1)]
        everybody = len(cluster.ids) - len(cluster.stopped)
        watch = _Watch(cluster, cluster.ids[victim], everybody - 1)
        failed_at = cluster.now
        (cluster.hang if kind.startswith("hung") else cluster.kill)(victim)
        cluster.run_for(LIMIT_MS, until=watch.is_over)
        if watch.decided_at is None or watch.installed_at is None or watch.acknowledged_at is None:
            found.not_found += 1
            continue
        master = cluster.living()[0]
        found.found_ms.append(watch.decided_at - failed_at)
        found.installed_ms.append(watch.installed_at - watch.decided_at)
        found.acknowledged_ms.append(watch.acknowledged_at - watch.decided_at)
    return found


def measure_size(size: int, config: NodeConfig, *, is_ring: bool, seconds: float, victims: int) -> Size:
    """Everything about one cluster size."""
    changes = {} if is_ring else {"ring_above_members": 0}
    settings = {name: getattr(config, name) for name in config.__struct_fields__}
    chosen = NodeConfig(**(settings | changes))
    real = REAL_OF_THEM if not is_ring and size > MOST_REAL_ALL_TO_ALL else 0

    def make() -> ManyMembers:
        return ManyMembers(size, chosen, real=real)

    load = measure_load(make(), min(seconds, 5.0) if real else seconds)
    kinds = ("hung slave", "killed slave") if real else ("hung slave", "killed slave", "hung master", "killed master")
    failures = [measure_failures(make, kind, min(victims, 3) if real else victims) for kind in kinds]
    return Size(size, "ring" if is_ring else "all", load, failures)


def membership(
    sizes: Annotated[str, typer.Option(help="Numbers of members, separated by commas.")] = "10,100,1000,3000",
    seconds: Annotated[float, typer.Option(help="Virtual seconds for which messages are counted.", min=1)] = 60.0,
    victims: Annotated[int, typer.Option(help="Members that fail, of each kind.", min=1)] = 5,
    failure_detector: Annotated[str, typer.Option(help="Who judges silence: phi or deadline.")] = (
        NodeConfig().failure_detector
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")] = False,
) -> None:
    """Measure what membership costs and how soon failures are found, from ten members to thousands, in simulation.

    Each size is measured with all-to-all heartbeats and, above `ring_above_members`, with the ring.
    """
    try:
        numbers = sorted({int(text) for text in sizes.split(",")})
    except ValueError:
        raise typer.BadParameter(f"{sizes!r} is not a list of numbers", param_hint="sizes") from None
    if numbers[0] < 3:
        raise typer.BadParameter("a cluster of fewer than 3 members has nobody left to agree", param_hint="sizes")
    config = NodeConfig(failure_detector=failure_detector)
    study = Study(failure_detector, LATENCY_MS, config.heartbeat_interval_ms, config.heartbeat_timeout_ms, [])
    progress = Console(stderr=True)
    for size in numbers:
        for is_ring in (False, True) if size > config.ring_above_members else (False,):
            progress.print(f"measuring: {size} members, {'ring' if is_ring else 'all-to-all'}", style="dim")
            study.sizes.append(measure_size(size, config, is_ring=is_ring, seconds=seconds, victims=victims))
    study.peak_memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(study)) + b"\n")
    else:
        print_study(study, Console())


def print_study(study: Study, console: Console) -> None:
    """The study as two tables."""
    console.print(_loads(study))
    console.print(_failures(study))
    console.print(
        f"Virtual time; every message takes {study.latency_ms} ms, heartbeats go out every "
        f"{study.heartbeat_interval_ms} ms, the failure detector is {study.failure_detector}. Real members of each size: "
        + ", ".join(f"{size.load.members_measured} of {size.members} ({size.watching})" for size in study.sizes)
        + f". Peak memory of the study: {study.peak_memory_mb} MB."
    )


def _loads(study: Study) -> Table:
    table = Table(title="When nothing fails, per second", box=SIMPLE_HEAD)
    for name in ("members", "watch", "messages of a slave", "of the busiest", "of the master", "bytes sent by a slave",
                 "by the master", "CPU of a slave, µs", "of the master"):  # fmt: skip
        table.add_column(name, justify="right")
    for size in study.sizes:
        load = size.load
        figures = (load.sent + load.received, load.busiest, load.master, load.bytes_sent, load.master_bytes_sent,
                   load.cpu_us, load.master_cpu_us)  # fmt: skip
        shown = [f"{figure:,.1f}" if figure < 100 else f"{figure:,.0f}" for figure in figures]
        table.add_row(f"{size.members:,}", size.watching, *shown)
    return table


def _failures(study: Study) -> Table:
    kinds = ("hung slave", "killed slave", "hung master", "killed master")
    title = "From the failure to the decision: least, median, most (s); then message delays to the last acknowledgement"
    table = Table(title=title, box=SIMPLE_HEAD)
    for name in ("members", "watch", *kinds):
        table.add_column(name, justify="right")
    for size in study.sizes:
        by_kind = {failures.kind: _spread(failures) for failures in size.failures}
        table.add_row(f"{size.members:,}", size.watching, *(by_kind.get(kind, "–") for kind in kinds))
    return table


def _spread(failures: Failures) -> str:
    if failures.not_found:
        return f"{failures.not_found} not found"
    found = failures.found_ms
    middle = (min(found), statistics.median(found), max(found))
    return " / ".join(f"{ms / 1_000:.1f}" for ms in middle) + f"; {failures.rounds():g}"
