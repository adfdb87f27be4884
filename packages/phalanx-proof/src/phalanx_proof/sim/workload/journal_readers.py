"""Readers of journals: now and then they ask a member that says it owns a partition, and keep the answers.

They look into members and send no messages, so nothing in the history depends on them. Besides the workload's map they read one
of their own, whose entries live for a short time.
"""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.codec.hashing import children_of, partition_of
from phalanx.common.ids import Millis
from phalanx.machine.inputs import Call
from phalanx.wire import messages as m
from phalanx_proof.sim.checkers.evidence import Evidence
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.checkers.journal_checker import EventRun, JournalChecker, JournalEvent
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.history.operations import Operation
from phalanx_proof.sim.history.request_ids import BRIEF_FROM
from phalanx_proof.sim.options import BRIEF, MAP, HistoryOptions
from phalanx_proof.sim.workload.calls import Workload
from phalanx_proof.sim.workload.program import Program

TURN_MS = 40
READERS = 2
"""Each goes at its own pace."""
BRIEF_KEYS = 8
TRIES_AT_REST = 10_000
"""Most requests at rest until a reader has read all."""
TEXT = b"\xff\xff\xff\xf5"


class Reader:
    """What one reader knows of one journal."""

    def __init__(self, lineage: int, run: EventRun, birth: int, asked: str, at: Millis) -> None:
        self.lineage = lineage
        self.run = run
        self.birth = birth
        """The partition's birth by the table of the last member that answered."""
        self.asked = asked
        """The last member that answered, and when."""
        self.at = at


class JournalReaders(Program):
    """All readers of one history."""

    stream = "followers"

    def __init__(self, options: HistoryOptions, workload: Workload, evidence: Evidence) -> None:
        super().__init__(options, workload, evidence)
        self._findings = evidence.findings
        self._checker = JournalChecker(evidence.findings)
        self._readers: dict[tuple[int, str, int, int], Reader] = {}
        """Number of the reader, map, partition and count of partitions to what it knows."""
        self._began: set[tuple[int, str, int, int]] = set()
        self._requests = 0
        self._overruns = self._restarts = 0

    def counts(self) -> dict[str, int]:
        return {
            "events read": self._checker.read,
            "readers too late": self._overruns,
            "readers told to begin anew": self._restarts,
        }

    def _events(self) -> Iterator[tuple[str, JournalEvent]]:
        """Yield all that readers were told without a gap: the map, and the event."""
        for (_, name, _, _), reader in self._readers.items():
            for event in reader.run.events:
                yield name, event

    def _start(self) -> None:
        self._world.queue.call_at(TURN_MS, self._turn)

    def _turn(self) -> None:
        if not self._runs:
            return
        rng, world = self._rng, self._world
        world.queue.call_at(world.now + 1 + int(rng.random() * 2 * TURN_MS), self._turn)
        hosts = [host for host in world.hosts if host.has_joined and not host.paused_until]
        if not hosts:
            return
        host = rng.choice(hosts)
        if rng.random() < 0.3:
            self._write_brief(host)
            if host.node is None:
                return  # its memory has run out with that
        reader = int(rng.random() * READERS)
        for owned in list(host.running_node.grid.ownership.owned):
            if owned is not None and rng.random() < 0.5:
                for name in (MAP, BRIEF):
                    self._read(reader, host, owned.number, name, 1 + int(rng.random() * (1, 20)[reader]))

    def _write_brief(self, host: Host) -> None:
        """Write an entry that expires soon, or clear the map."""
        rng, table = self._rng, host.table
        if table is None or not table.version:
            return
        key = TEXT + b"b%d" % int(rng.random() * BRIEF_KEYS)
        self._requests += 1
        number, partition_count = BRIEF_FROM + self._requests, table.partition_count
        partition = partition_of(key, partition_count)
        request: m.Request
        if rng.random() < 0.05:
            request = m.ClearPartitions(number, BRIEF, [partition], partition_count)
        else:
            ttl_ms = rng.choice((0, 1, 50, 150, 400, 2_000))
            request = m.PutAll(number, BRIEF, [key], [TEXT + b"%d" % number], ttl_ms)
        self._world.feed(host, host.running_node.this, Call(partition, request))

    def unmet(self) -> list[str]:
        grids = [host.running_node.grid for host in self._world.hosts if host.has_joined]
        waiting = [f"{owned} waits for replicas" for grid in grids for owned in grid.leader.unsettled.values()]
        stores = [(owned, owned.replica.maps.get(BRIEF)) for grid in grids for owned in grid.ownership.all_owned()]
        return waiting + [
            f"{owned} holds what ends" for owned, store in stores if store is not None and store.expires_at
        ]

    # --- reading ---------------------------------------------------------------------------------------------------

    def _read(self, number: int, host: Host, partition: int, name: str, limit: int) -> m.JournalReply | None:
        """Make one request and return its answer; None: the map has no journal there yet."""
        grid, now = host.running_node.grid, self._world.now
        listed = grid.ownership.owned
        owned, partition_count = listed[partition], len(listed)
        if owned is None:
            return None
        place = (number, name, partition, partition_count)
        reader = self._readers.get(place)
        birth = grid.ownership.table.births[partition]
        if reader is None:
            reply = grid.reads.read_journal(owned, m.ReadJournal(0, name, partition, partition_count, 0, 0, 0, 1))
            if not reply.lineage or reply.end < 0:
                return None
            # The first reader begins with the journal; a reader that begins anew lacks what was before.
            run = EventRun(
                reply.oldest,
                from_beginning=place not in self._began
                and reply.oldest == 0
                and partition_count == self._options.partitions,
            )
            self._began.add(place)
            reader = self._readers[place] = Reader(reply.lineage, run, birth, grid.this, now)
        asked = reader.run.next
        reply = grid.reads.read_journal(
            owned, m.ReadJournal(0, name, partition, partition_count, reader.lineage, asked, limit, 10_000)
        )
        if not reply.lineage or reply.known_to < asked:
            self._on_other_history(place, reader, host, reply)
            return None
        reader.birth, reader.asked, reader.at = birth, grid.this, now
        if reply.oldest > asked:
            self._overruns += 1
            reader.lineage = reply.lineage
            reader.run = EventRun(reply.oldest, from_beginning=False)
        elif reply.keys:
            self._checker.on_events(place[1:], reader.run, asked, reply, now)
            reader.lineage = reply.lineage
        return reply

    def _on_other_history(
        self, place: tuple[int, str, int, int], reader: Reader, host: Host, reply: m.JournalReply
    ) -> None:
        """Handle an answer of a journal that does not have the reader's position: begin anew, unless the answer is out
        of date.
        """
        _, name, partition, partition_count = place
        tables = [
            each.table
            for each in self._world.hosts
            if each.table is not None and each.table.partition_count == partition_count
        ]
        newest = max(table.versions[partition] for table in tables)
        table = host.table
        if table is None or (not self._options.has_sides and table.versions[partition] < newest):
            return  # Who is behind others answers what was true before; a client looks for a newer table, and asks again.
        if not self._options.has_sides and not self._may_be_lost(
            reader, partition, partition_count, table.births[partition]
        ):
            story = (
                f"partition {partition} of {partition_count} of {name!r} at {host.member}: a reader is behind event {reader.run.next} of "
                f"{reader.lineage}, which is known to {reply.known_to}; the journal has {reply.oldest} to {reply.end}"
            )
            self._findings.add(self._world.now, "a position in a journal stays one", story)
        self._restarts += 1
        del self._readers[place]

    def _may_be_lost(self, reader: Reader, partition: int, partition_count: int, birth: int) -> bool:
        if birth != reader.birth:
            return True
        tables = self._evidence.tables
        parts = children_of(partition, len(tables.lines), partition_count)
        since, now = reader.at - self._options.call_timeout_ms, self._world.now
        return any(tables.may_be_lost(part, reader.asked, since, now) for part in parts)  # type: ignore[arg-type]

    # --- at rest ---------------------------------------------------------------------------------------------------

    def judge(self, joined: list[Host], now: Millis) -> None:
        """Read all that is left, and judge the whole."""
        if (table := joined[0].table) is None or not table.version:
            return
        for number in range(READERS):
            whole: dict[bytes, EventRun] = {}
            for host in joined:
                for owned in host.running_node.grid.ownership.owned:
                    if owned is not None:
                        for name in (MAP, BRIEF):
                            self._read_rest(number, host, owned.number, name, whole, now)
            if not self._options.has_sides:
                self._checker.check_writes(whole, self._workload.operations, self._is_excused, now)
        check_journals(joined, self._findings, now)
        if self._options.max_entries:
            self._evidence.evictions.check_events(self._events())

    def _read_rest(
        self, number: int, host: Host, partition: int, name: str, whole: dict[bytes, EventRun], now: Millis
    ) -> None:
        grid = host.running_node.grid
        listed = grid.ownership.owned
        owned, partition_count = listed[partition], len(listed)
        place = (number, name, partition, partition_count)
        is_done, tries = False, 0
        while not is_done and tries < TRIES_AT_REST:
            reply = self._read(number, host, partition, name, 1_000)
            is_done = reply is not None and place in self._readers and self._readers[place].run.next >= reply.end
            tries += 1
        journal = owned.replica.journals.get(name)  # type: ignore[union-attr]  # it is owned there
        if journal is None or not is_done or self._readers[place].run.next != journal.next:
            story = f"partition {partition} of {name!r} at {host.member}: {journal}, read to {self._readers.get(place)}"
            self._findings.add(now, "at rest all events can be read", story)
            return
        run = self._readers[place].run
        store = owned.replica.maps.get(name)  # type: ignore[union-attr]  # it is owned there
        entries = {key: stored[8:] for key, stored in store.entries.items()} if store is not None else {}
        self._checker.check_content(place[1:], run, entries, now)
        if name == MAP and run.from_beginning:
            keys = {key for _, key, _, _, _ in run.events} | entries.keys()
            whole.update(dict.fromkeys(sorted(keys), run))

    def _is_excused(self, key: bytes, operation: Operation) -> bool:
        replier, begin, end = operation.replier, operation.begin, operation.end
        if replier is None:
            return False
        part = partition_of(key, len(self._evidence.tables.lines))
        return self._evidence.may_be_lost(key, replier, begin, end) or self._evidence.merges.may_be_void(
            part, begin, end, replier, self._world.now
        )


def check_journals(hosts: list[Host], findings: Findings, now: Millis) -> None:
    """Check at rest that the replicas of a partition have the same journals."""
    grids = {host.running_node.this: host.running_node.grid for host in hosts}
    for member, grid in grids.items():
        for owned in grid.ownership.owned:
            if owned is None:
                continue
            for backup in grid.ownership.table.replicas(owned.number)[1:]:
                theirs = grids[backup].follower.replicas.get(owned.number) if backup in grids else None
                for name, journal in owned.replica.journals.items():
                    other = theirs.journals.get(name) if theirs is not None else None
                    if other is None or list(other.events) != list(journal.events) or other.next != journal.next:
                        story = f"partition {owned.number} of {name!r}: {journal} at {member}, {other} at {backup}"
                        findings.add(now, "journals are equal at rest", story)
