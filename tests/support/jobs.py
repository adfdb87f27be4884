"""A job that stages for a map, request by request, as a client would."""

from typing import Any

from phalanx.client.staging import StagedRows
from phalanx.codec.rows import rows_by_partition
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import HiddenKind, StagedStep, hidden_name
from phalanx.common.map_plan import Batch
from phalanx.wire import messages as m

from .harness import MAP, Cluster


class Job:
    """Requests go to the member that is named."""

    def __init__(self, c: Cluster, name: str = "j1", map_name: str = MAP) -> None:
        self.c = c
        self.name = name
        self.map = map_name
        self.staged: dict[str, StagedRows] = {}
        """Of each attempt what it was told is staged, or has asked for last."""
        self.begins: list[int] = []
        """Requests to begin a replace."""

    def hidden(self, kind: HiddenKind, attempt: str = "") -> str:
        return hidden_name(self.map, self.name, kind, attempt)

    def stage(self, at: str, attempt: str, keys: list[bytes], value: bytes, ttl_ms: int = 0, page: int = 0) -> int:
        """`page`: what to say instead of the number that is due."""
        of = self.c.table(at).partition_count
        before = self.staged.get(attempt, StagedRows(attempt)).in_partitions(range(of), of)
        rows = rows_by_partition(keys, [value] * len(keys), of)
        said = {partition: page or before[partition] + 1 for partition in rows}
        parts = tuple(m.PackedRows(partition, rows[partition], said[partition]) for partition in sorted(rows))
        request = self.c.ask(at, m.PutPacked, self.hidden(HiddenKind.ATTEMPT, attempt), parts, of, ttl_ms)
        if not isinstance(self.c.replies.get(request), m.ErrorReply):
            after = tuple(max(count, said.get(partition, 0)) for partition, count in enumerate(before))
            self.staged[attempt] = StagedRows(attempt, of, after)
        return request

    def ask(self, at: str, step: StagedStep, *attempts: str, query: str = "", number: int = 0) -> int:
        of = self.c.table(at).partition_count
        partitions = [p for p in range(of) if self.c.replicas(at, p).startswith(at)]
        pages = tuple(self.staged.get(each, StagedRows(each)).in_partitions(partitions, of) for each in attempts)
        return self.c.ask(
            at, m.ChangeStaged, self.map, partitions, of, step, self.name, list(attempts), query, number, pages
        )

    def wish(self, at: str, wish: m.Replacement, batch: Batch | None = None, schema: str | None = None) -> int:
        request = self.c.ask(at, m.ReplaceContent, self.map, self.name, wish, self.stamp, batch, schema)
        if wish is m.Replacement.BEGIN:
            self.begins.append(request)
        return request

    @property
    def stamp(self) -> int:
        """What the job was answered when it began last."""
        told = [reply.count for each in self.begins if isinstance(reply := self.c.replies.get(each), m.CountReply)]
        return told[-1] if told else 0

    def wish_until(self, at: str, wish: m.Replacement, batch: Batch | None = None, schema: str | None = None) -> Any:
        """Asked until it is fulfilled or refused, as the client does."""
        for _ in range(20):
            request = self.wish(at, wish, batch, schema)
            self.c.settle()
            reply = self.c.replies[request]
            if not (isinstance(reply, m.ErrorReply) and reply.code is ErrorCode.NOT_READY):
                return reply
            self.c.advance(20)
        return reply
