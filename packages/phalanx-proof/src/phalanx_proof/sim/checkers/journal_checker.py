"""Checks the answers that readers of journals got: against each other, the calls of the programs, and the entries at rest.

What is promised, and therefore checked:

* A reader gets the events of a partition in the order of their numbers, none left out, none twice. It is told when events that
  it has not read are gone.
* A number, under its lineage, always names the same event, whichever member sends it.
* The events of a key are its history: each has the right old value, and the last one leads to the entry at rest.
* An acknowledged write is one event. A write that changed nothing is none, and one whose outcome is unknown at most one.
* A position in a journal stays valid through crashes and migrations, unless all replicas in sync left the cluster that
  went on, or the partition was divided. Where sides of a cut merge, one journal goes on; readers of the others are told.
* At rest all events can be read, and all replicas of a partition have the same ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from phalanx.common.ids import Millis
from phalanx.wire.messages import JournalReply
from phalanx_proof.sim.checkers.data_checker import ONCE, write_of
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.history.operations import Operation, Outcome

GONE = (3, 4, 5)
"""Kinds of events after which there is no entry: removed, expired, evicted."""
ADDED, UPDATED = 1, 2

JournalEvent = tuple[int, bytes, bytes | None, bytes | None, Millis]
"""Kind, key, value, old value, time."""


class EventRun:
    """The events that one reader was told of one journal, without a gap."""

    def __init__(self, first: int, *, from_beginning: bool) -> None:
        self.first = first
        self.events: list[JournalEvent] = []
        self.from_beginning = from_beginning
        """Whether it has every event of the map in this partition."""

    @property
    def next(self) -> int:
        return self.first + len(self.events)


class JournalChecker:
    """Judges each answer as it comes, and the whole when all is at rest."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._named: dict[tuple[str, int, int, int, int], JournalEvent] = {}
        """Map, partition, count of partitions, lineage and number to the event, for the last event of each answer."""
        self.read = 0

    def on_events(
        self, where: tuple[str, int, int], run: EventRun, asked: int, reply: JournalReply, now: Millis
    ) -> None:
        """Check an answer with events. `where`: map, partition, and how many partitions there are."""
        events = list(zip(reply.kinds, reply.keys, reply.values, reply.olds, reply.stamps, strict=True))
        if reply.sequence != asked or asked != run.next:
            story = f"{where}: asked from {asked}, told from {reply.sequence}"
            self._findings.add(now, "events come in their order", story)
        last = asked + len(events) - 1
        known = self._named.setdefault((*where, reply.lineage, last), events[-1])
        if known != events[-1]:
            story = f"{where}: event {last} of lineage {reply.lineage} was {known}, and is {events[-1]}"
            self._findings.add(now, "an event stays what it was", story)
        run.events += events
        self.read += len(events)

    # --- at rest ---------------------------------------------------------------------------------------------------

    def check_content(
        self, where: tuple[str, int, int], run: EventRun, entries: dict[bytes, bytes], now: Millis
    ) -> None:
        """Replay what was read, and compare it with the entries of the partition."""
        state: dict[bytes, bytes | None] = {}
        for number, (kind, key, value, old, _) in enumerate(run.events, start=run.first):
            is_known = key in state or run.from_beginning
            if (is_known and state.get(key) != old) or (kind in (UPDATED, *GONE) and old is None):
                story = f"{where}: event {number} of {key!r} says that {old!r} was there, and it was {state.get(key)!r}"
                self._findings.add(now, "an event says what was there before", story)
            if (value is None) != (kind in GONE) or (kind == ADDED and old is not None):
                self._findings.add(
                    now, "an event says what was there before", f"{where}: {run.events[number - run.first]}"
                )
            state[key] = value
        for key, last in state.items():
            if entries.get(key) != last:
                story = f"{where}: the last event of {key!r} gave it {last!r}, and it has {entries.get(key)!r}"
                self._findings.add(now, "the events of a key lead to what it has", story)
        if run.from_beginning and (silent := sorted(entries.keys() - state.keys())):
            self._findings.add(now, "the events of a key lead to what it has", f"{where}: no event of {silent[:5]}")

    def check_writes(
        self,
        runs: dict[bytes, EventRun],
        operations: Iterable[Operation],
        is_excused: Callable[[bytes, Operation], bool],
        now: Millis,
    ) -> None:
        """Check that each acknowledged write is one event. `runs`: keys to all that ever happened to them."""
        stored: Counter[tuple[bytes, bytes | None]] = Counter()
        for key, run in runs.items():
            stored.update((key, value) for _, of, value, _, _ in run.events if of == key and value is not None)
        for operation in operations:
            for key, value in zip(operation.keys, operation.values, strict=False):
                # Counters get the same values more than once, when a raise was lost with all that had it.
                if key not in runs or key[4:5] == b"c":
                    continue
                found, write = stored[key, value], write_of(operation, key)
                is_known = write is not None and write.acknowledged
                changed_nothing = operation.outcome is Outcome.FAILED or (
                    operation.outcome is Outcome.OK and operation.kind in ONCE and write is None
                )
                most, least = (0 if changed_nothing else 1), (1 if is_known else 0)
                if found > most or (found < least and not is_excused(key, operation)):
                    story = f"{operation} is {found} events of {key!r}"
                    self._findings.add(now, "a write is one event", story)
