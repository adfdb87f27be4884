"""What jobs stage, and what journals hold, of the grid in this process."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from phalanx.client.blocking.journal import Bounds, JournalEvent, Position
from phalanx.client.staging import StagedRows
from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_data, to_key_data
from phalanx.common.errors import JournalOverrun
from spark.fakes import PARTITIONS, FakeGrid, unpacked

Rows = dict[bytes, bytes | None]
"""Of one attempt: what each key is to hold; None: nothing."""


class Died(BaseException):
    """The driver is gone: nothing that comes behind happens."""


class Stages:
    """The stages of all jobs, as the members would hold them, and which batches their partitions have applied."""

    def __init__(self) -> None:
        self.attempts: dict[tuple[str, str, str], Rows] = {}
        """By map, job and attempt."""
        self.applied: dict[tuple[str, int, str], int] = {}
        """By map, partition and query: the number of the last batch."""
        self.dies_behind: int | None = None
        """So many partitions of an apply are done, then the one who asked is gone."""
        self.prepared: dict[bytes, bytes] | None = None
        self.prepared_schema: str | None = None

    def staging(self, client: FakeGrid, map_name: str, job: str) -> "FakeStaging":
        return FakeStaging(self, client, map_name, job)


class FakeAttempt:
    def __init__(self, name: str, rows: Rows) -> None:
        self.name = name
        self.rows = rows
        self.pages = 0

    def staged(self) -> StagedRows:
        return StagedRows(self.name, 1, (self.pages,))

    def put_packed(self, parts: Mapping[int, bytes], of: int, ttl_ms: int = 0) -> None:
        keys, values = unpacked(parts, of)
        assert len(keys) == len(set(keys)) == len(values)
        self.rows.update(zip(keys, values, strict=True))
        self.pages += 1

    def delete_keys(self, keys: list[bytes]) -> None:
        self.rows.update(dict.fromkeys(keys))
        self.pages += 1


class FakeStaging:
    """One job's view of them."""

    def __init__(self, stages: Stages, client: FakeGrid, map_name: str, job: str) -> None:
        self.stages = stages
        self.client = client
        self.map_name = map_name
        self.job = job

    def attempt(self, attempt_id: str) -> FakeAttempt:
        return FakeAttempt(attempt_id, self.stages.attempts.setdefault((self.map_name, self.job, attempt_id), {}))

    def apply(self, attempts: Sequence[StagedRows], batch: tuple[str, int] | None = None) -> int:
        rows: Rows = {}
        for each in attempts:
            assert any(each.pages)
            rows |= self.stages.attempts[self.map_name, self.job, each.attempt]
        done = 0
        for partition in range(PARTITIONS):
            if batch is not None:
                known = (self.map_name, partition, batch[0])
                if self.stages.applied.get(known, -1) >= batch[1]:
                    continue
                if done == self.stages.dies_behind:
                    raise Died
                self.stages.applied[known] = batch[1]
            entries = self.client.maps.setdefault(self.map_name, {})
            for key, value in rows.items():
                if partition_of(key, PARTITIONS) == partition:
                    entries.pop(key, None)
                    if value is not None:
                        entries[key] = value
            done += 1
        self.drop()
        return done

    def prepare_replace(
        self, attempts: Sequence[StagedRows], batch: tuple[str, int] | None = None, schema: str | None = None
    ) -> None:
        rows: Rows = {}
        for each in attempts:
            assert any(each.pages)
            rows |= self.stages.attempts[self.map_name, self.job, each.attempt]
        self.stages.prepared = {key: value for key, value in rows.items() if value is not None}
        self.stages.prepared_schema = schema

    def decide_replace(self) -> None:
        assert self.stages.prepared is not None
        self.client.maps[self.map_name] = self.stages.prepared
        if self.stages.prepared_schema is not None:
            self.client.set_schema(self.map_name, self.stages.prepared_schema)
        self.stages.prepared = None
        self.drop()

    def abort(self) -> bool:
        self.drop()
        return True

    def drop(self) -> None:
        for name in [name for name in self.stages.attempts if name[:2] == (self.map_name, self.job)]:
            del self.stages.attempts[name]


class Journals:
    """The journal of one map, with a history for each partition."""

    def __init__(self, stamp_ms: int = 1_700_000_000_000) -> None:
        self.events: list[list[JournalEvent]] = [[] for _ in range(PARTITIONS)]
        self.lineages: list[list[tuple[int, int]]] = [[(partition + 1, 0)] for partition in range(PARTITIONS)]
        """Of each partition: each lineage with the number of its first event, in their order."""
        self.oldest = [0] * PARTITIONS
        self.stamp_ms = stamp_ms
        self.asked: list[str] = []

    def journal(self, map_name: str, client: FakeGrid) -> "FakeJournal":
        self.asked.append(map_name)
        return FakeJournal(self)

    def happen(self, kind: str, key: object, value: object = None, old: object = None) -> int:
        """Something happens to a key; in which partition."""
        data = to_key_data(key)
        partition = partition_of(data, PARTITIONS)
        events = self.events[partition]
        new, before = (None if each is None else to_data(each) for each in (value, old))
        events.append(JournalEvent(kind, data, new, before, self.stamp_ms + len(events), len(events)))
        return partition

    def put(self, key: object, value: object) -> int:
        return self.happen("added", key, value)

    def drop(self, partition: int, before: int) -> None:
        """Events before a number are not kept any more."""
        self.oldest[partition] = before

    def part(self, partition: int, at: int, lineage: int) -> None:
        """From a number on another history is the one that counts, under a new lineage."""
        del self.events[partition][at:]
        self.lineages[partition] = [one for one in self.lineages[partition] if one[1] < at or at == one[1] == 0]
        if at == 0:
            self.lineages[partition] = []
        self.lineages[partition].append((lineage, at))

    def known_to(self, partition: int, lineage: int) -> int:
        if lineage == 0:
            return len(self.events[partition])
        ends = [first for _, first in self.lineages[partition][1:]] + [len(self.events[partition])]
        return next((end for (name, _), end in zip(self.lineages[partition], ends, strict=True) if name == lineage), -1)


class FakeJournal:
    """What a client sees of it, two events at a time."""

    def __init__(self, journals: Journals) -> None:
        self.journals = journals

    def bounds(
        self, partitions: Iterable[int] | None = None, lineages: Mapping[int, int] | None = None
    ) -> dict[int, Bounds]:
        held = self.journals
        return {
            partition: Bounds(
                held.lineages[partition][-1][0],
                held.oldest[partition],
                len(held.events[partition]),
                held.known_to(partition, (lineages or {}).get(partition, 0)),
            )
            for partition in (range(PARTITIONS) if partitions is None else partitions)
        }

    def read_range(self, partition: int, begin: Position, end: Position) -> Iterator[list[JournalEvent]]:
        held = self.journals
        for lineage, number in (begin, end):
            assert held.known_to(partition, lineage) >= number
        at = begin.sequence
        while at < end.sequence:
            if at < held.oldest[partition]:
                raise JournalOverrun(partition, held.oldest[partition] - at, f"partition {partition}: too late")
            yield held.events[partition][at : min(at + 2, end.sequence)]
            at = min(at + 2, end.sequence)
