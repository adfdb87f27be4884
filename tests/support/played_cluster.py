"""A cluster that is played by hand, for plans of calls (`phalanx.maps.call_plans`): no socket, and time that it tells."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from phalanx.codec.hashing import partition_of, scan_position
from phalanx.codec.rows import unpack_rows
from phalanx.common.errors import ErrorCode
from phalanx.common.ids import Lost
from phalanx.common.table import PartitionTable, build_table
from phalanx.maps.call_plans import CallOwners, CallPlan, FindTable, Pause, RefreshTable
from phalanx.maps.map_plans import MapPlans
from phalanx.maps.scanning import Scan
from phalanx.wire import messages as m

T = TypeVar("T")
MAP = "m"
LIMIT_S = 10.0


def table(*owners: str, version: int = 1) -> PartitionTable:
    """The owner of each partition."""
    return build_table([(name,) for name in owners], [version] * len(owners))  # type: ignore[misc]  # any texts name members


class PlayedCluster:
    """Owners of one map. A client knows the table `known`; what is true is `table`, and whoever owns no more refuses."""

    call_timeout_s = LIMIT_S

    def __init__(self, first: PartitionTable, keys: Sequence[bytes] = ()) -> None:
        self.known = self.table = first
        self.stored = {key: b"value of " + key for key in keys}
        self.next_id = itertools.count(1).__next__
        self.now = 0.0
        self.rounds: list[list[str]] = []
        """Of each round, who was asked for what."""
        self.limits_ms: list[int] = []
        """Of each round."""
        self.waits: list[str] = []
        """What was done to find a newer table, in order."""
        self.page_size = 2
        self.before_round: Callable[[int], None] = lambda number: None
        """Called with the number of a round, from 0 on, before its requests arrive."""
        self.refusals: dict[str, ErrorCode] = {}
        """What these members answer instead."""
        self.most_values: int | None = None
        self.updates: list[bytes] = []
        """The keys that updates of many entries have changed, in order."""
        self.refused_keys: set[bytes] = set()
        """Keys whose updates are refused."""

    def play(self, plan: CallPlan[T]) -> T:
        """Carry out a plan."""
        outcome: Any = None
        while True:
            try:
                step = plan.send(outcome)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            match step:
                case CallOwners(requests=requests, within_ms=within_ms):
                    outcome = self.call_all(requests, within_ms)
                case FindTable():
                    outcome = self.known
                case RefreshTable(within_s=within_s):
                    outcome = self.refresh(within_s)
                case Pause(seconds=seconds):
                    self.waits.append("pause")
                    self.now += seconds
                    outcome = None

    def read_all(self, scan: Scan[Any]) -> list[Any]:
        """All pages of a scan."""
        found: list[Any] = []
        while (pages := self.play(scan.next_pages())) is not None:
            assert pages
            found += pages
        return found

    # --- what a client asks for ------------------------------------------------------------------------------------

    def partition_table(self) -> PartitionTable:
        return self.known

    def refresh(self, within_s: float) -> PartitionTable:
        self.waits.append("refresh")
        self.known = self.table
        return self.known

    def call_all(self, requests: Sequence[tuple[int, Any]], within_ms: int = 0, lost: Lost = ()) -> list[Any]:
        self.before_round(len(self.rounds))
        self.limits_ms.append(within_ms)
        asked: list[str] = []
        self.rounds.append(asked)
        return [self.answer(partition, request, asked) for partition, request in requests]

    def answer(self, partition: int, request: Any, asked: list[str]) -> Any:
        owner = self.known.owner(partition)
        asked.append(f"{owner}:{self.told(request)}")
        if (code := self.refusals.get(str(owner))) is not None:
            return m.ErrorReply(request.id, code, f"{owner} says no")
        count = self.table.partition_count
        if (
            any(self.table.owner(p) != owner for p in self.partitions_of(request))
            or getattr(request, "of", count) != count
        ):
            return m.ErrorReply(request.id, ErrorCode.NOT_OWNER, f"{owner} owns that no more")
        return self.done(request)

    def told(self, request: Any) -> str:
        match request:
            case m.GetAll(keys=keys) | m.PutAll(keys=keys):
                return b",".join(keys).decode()
            case m.SizeOf(partitions=partitions) | m.ClearPartitions(partitions=partitions):
                return ",".join(map(str, partitions))
            case m.PutPacked(parts=parts):
                return ",".join(str(part.partition) for part in parts)
            case _:
                return f"{request.partition}/{request.of} behind {request.after_key.decode(errors='replace')!r}"

    def partitions_of(self, request: Any) -> list[int]:
        count = self.table.partition_count
        match request:
            case m.GetAll(keys=keys) | m.PutAll(keys=keys):
                return [partition_of(key, count) for key in keys]
            case m.SizeOf(partitions=partitions) | m.ClearPartitions(partitions=partitions):
                return [partition % count for partition in partitions]
            case m.PutPacked(parts=parts):
                return [part.partition % count for part in parts]
            case _:
                return [request.partition % count]

    def done(self, request: Any) -> Any:
        number, count = request.id, self.table.partition_count
        match request:
            case m.GetAll(keys=keys):
                return m.ValuesReply(number, [self.stored.get(key) for key in keys][: self.most_values])
            case m.PutAll(keys=keys, values=values):
                self.stored.update(zip(keys, values, strict=True))
                return m.DoneReply(number)
            case m.PutPacked(parts=parts):
                for part in parts:
                    self.stored.update(zip(*unpack_rows(part.rows), strict=True))
                return m.DoneReply(number)
            case m.SizeOf(partitions=partitions):
                return m.CountReply(number, sum(partition_of(key, count) in partitions for key in self.stored))
            case m.ClearPartitions(partitions=partitions):
                self.stored = {k: v for k, v in self.stored.items() if partition_of(k, count) not in partitions}
                return m.DoneReply(number)
            case m.ScanPartition(partition=partition, after_key=after):
                page, more = self.page(partition, after)
                return m.PageReply(number, page, [self.stored[key] for key in page], more)
            case m.ScanPacked(partition=partition, after_key=after):
                page, more = self.page(partition, after)
                return m.PackedReply(number, b"".join(page), b"", b"", b"", more, page[-1] if more else b"")
            case m.UpdateWhere(partition=partition, after_key=after, arguments=[new]):
                page, more = self.page(partition, after)
                told = [key for key in page if key not in self.refused_keys]
                self.stored |= dict.fromkeys(told, new)
                self.updates += told
                refused = [key for key in page if key in self.refused_keys]
                first = (refused[0], "no") if refused else (b"", "")
                return m.UpdatedReply(number, len(told), more, page[-1] if more else b"", len(refused), *first)
        raise AssertionError(request)

    def page(self, partition: int, after: bytes) -> tuple[list[bytes], bool]:
        mine = [key for key in self.stored if partition_of(key, self.table.partition_count) == partition]
        ordered = sorted(mine, key=lambda key: (scan_position(key), key))
        behind = [key for key in ordered if not after or (scan_position(key), key) > (scan_position(after), after)]
        return behind[: self.page_size], len(behind) > self.page_size


def plans_of(cluster: PlayedCluster) -> MapPlans:
    return MapPlans(MAP, cluster, lambda: cluster.now)


def keys_in(partition: int, count: int, many: int) -> list[bytes]:
    """The first keys of a partition."""
    named = (b"key-%d" % number for number in itertools.count())
    return list(itertools.islice((key for key in named if partition_of(key, count) == partition), many))
