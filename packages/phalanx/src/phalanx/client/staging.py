"""All-or-nothing writes of a job: its rows are staged in the members, and then put into the map in one step.

A job is one run of a program that writes (a Spark write, one run of one micro-batch), with a unique name:
`new_job_id()`. Each of its tasks can run several times, also at once; each run is an *attempt* with a name of its own
within the job. Rows of an attempt go into a hidden map, on the members that own their keys, as fast as `put_all`;
readers do not see them.

    staging = Staging(client, "flights", job)                    # on executors and on the driver, each with its client
    attempt = staging.attempt(name)                              # on an executor
    attempt.put_rows(keys, values, ttl_ms)                       # batch by batch
    attempt.delete_keys(keys)
    rows = attempt.staged()                                      # to the driver, when all is staged
    staging.apply(rows_of_attempts, batch=("query-7", 12))       # on the driver, with those of the attempts that count

Of several rows with one key, the last one in an attempt counts; of several attempts, the last one in the given order.
`StagedRows` says how many pages an attempt staged in each partition: a member that lacks a page refuses the step, and
nothing is done.

*Apply* upserts and removes the rows in the map, in one step of each partition. It is idempotent. With a batch, a
partition that has applied this number of the query or a later one skips it, whichever job asks. A driver that dies in
the middle has applied only some partitions: the same batch, by any job that has staged the same rows, applies the rest.

*Replace* replaces the whole content of the map by the rows: `prepare_replace` on all partitions, then `decide_replace`,
which is one decision of the master. Before it nothing has changed; after it nobody sees the old content. If two jobs
prepare at the same time, the later one wins, and the earlier one is refused.

*Snapshot* keeps the map as it is, each partition at one moment, under a hidden name for `scan_data` and `get_data` of
the client. It copies no values. Entries that expire in the map expire in the snapshot, too.

Members drop rows that a job neither applied nor dropped when they were unused for `staging_ms` (by default an hour). An
attempt that writes after its job was applied, decided or dropped gets an error which says that the job is over.

Staging waits while members have no memory for the rows, and raises `GridFull` in the end.

Every method raises `UnavailableError` if nothing was done, and `IndeterminateWrite` if something may have been done: it
is safe to call it again. It raises `UsageError` if the call can never succeed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from phalanx.calls.lost_members import has_ended_members
from phalanx.client.blocking.packed_rows import put_round, rounds_of
from phalanx.client.blocking.sync_map import SyncMap
from phalanx.client.memory_wait import wait_for_memory
from phalanx.client.sync import Client
from phalanx.codec.hashing import children_of
from phalanx.codec.rows import rows_by_partition
from phalanx.common.errors import ErrorCode, UnavailableError, UsageError
from phalanx.common.hidden_maps import HiddenKind, HiddenName, StagedStep, check_part, hidden_name
from phalanx.common.ids import Lost
from phalanx.common.map_plan import Batch
from phalanx.grid.replica.staged_steps import REMOVES
from phalanx.maps.grouping import BATCH_KEYS
from phalanx.maps.requests import check_map_name, expect, raise_error
from phalanx.maps.time_limit import TimeLimit
from phalanx.wire.limits import MAX_ATTEMPTS
from phalanx.wire.messages import ChangeStaged, CountReply, ErrorReply, FlagReply, ReplaceContent, Replacement

PARTITIONS_AT_ONCE = 16
"""Partitions in one request for a step: a member processes all their rows in one turn."""
NO_VALUE = bytes(4)
"""The value of a staged removal: it has the least length of a value."""
ASK_AGAIN_AFTER_S = 0.02
MOST_QUERY_LENGTH = 200


R = TypeVar("R", CountReply, FlagReply)


def _checked(batch: tuple[str, int] | None) -> tuple[str, int]:
    """Return a query and its batch number; ("", 0) for no batch. Raises `UsageError` if the query's name is bad."""
    query, number = batch if batch is not None else ("", 0)
    if batch is not None and not 0 < len(query) <= MOST_QUERY_LENGTH:
        raise UsageError(f"{query!r} cannot name a query: give 1 to {MOST_QUERY_LENGTH} characters")
    return query, number


def new_job_id() -> str:
    """Return a unique job id."""
    return uuid.uuid4().hex


class StagedRows(NamedTuple):
    """What an attempt has staged. It can be pickled: the driver of the job needs it to apply the rows."""

    attempt: str
    of: int = 0
    """The partition count when it was staged; 0: nothing was staged."""
    pages: tuple[int, ...] = ()
    """For each partition, how many pages of rows were staged."""

    def in_partitions(self, partitions: Sequence[int], partition_count: int) -> tuple[int, ...]:
        """Return how many pages each of these partitions must have. All parts of a divided partition have its pages."""
        return tuple(self.pages[partition % self.of] for partition in partitions) if self.of else (0,) * len(partitions)


class StagedAttempt:
    """The staged rows of one attempt of one task. Only one thread of one process can use it."""

    def __init__(self, name: str, rows: SyncMap[Any, Any]) -> None:
        self._name = name
        self._rows = rows
        self._partition_count = 0
        self._pages: list[int] = []
        """For each partition, how many pages were staged in it."""

    def staged(self) -> StagedRows:
        """Return what has been staged until now."""
        return StagedRows(self._name, self._partition_count, tuple(self._pages))

    def put_rows(self, keys: list[bytes], values: list[bytes], ttl_ms: int = 0) -> None:
        """Stage serialised entries. Their time to live (0: no expiry) begins when they are applied."""
        if len(keys) != len(values):
            raise UsageError(f"put_rows: {len(keys)} keys and {len(values)} values; give one value for each key")
        partition_count = self._rows.client.partition_table().partition_count
        self.put_packed(rows_by_partition(keys, values, partition_count), partition_count, ttl_ms)

    def put_packed(self, parts: Mapping[int, bytes], of: int, ttl_ms: int = 0) -> None:
        """Stage rows like `put_rows`; the caller has packed them (`codec.rows`) by partition (of `of` partitions)."""
        if ttl_ms < 0:
            raise UsageError(f"ttl_ms is {ttl_ms}: give 0 (no limit) or more")
        self._put(parts, of, ttl_ms)

    def delete_keys(self, keys: list[bytes]) -> None:
        """Stage removals of serialised keys."""
        partition_count = self._rows.client.partition_table().partition_count
        self._put(rows_by_partition(keys, [NO_VALUE] * len(keys), partition_count), partition_count, REMOVES)

    def _put(self, parts: Mapping[int, bytes], partition_count: int, ttl_ms: int) -> None:
        """Send rows in pages that fit one request to each owner; each partition gets them one after the other.

        After a failed page the caller can repeat it, or send another one in its place. While members have no memory, this
        waits for as long as a call can take.
        """
        client = self._rows.client
        for some in rounds_of(parts, BATCH_KEYS):
            put = partial(
                put_round, client, self._rows.name, some, partition_count, ttl_ms, self._next_page, "staging rows"
            )
            done = wait_for_memory(put, client.call_timeout_s)
            for partition, count in done:
                self._follow_division(count)
                for part in children_of(partition, self._partition_count, count):
                    self._pages[part] += 1

    def _next_page(self, partition: int, partition_count: int) -> int:
        self._follow_division(partition_count)
        return self._pages[partition] + 1

    def _follow_division(self, partition_count: int) -> None:
        """Follow a division of the partitions: each new one has the pages of the partition from which it comes."""
        if self._partition_count < partition_count:
            self._pages = [
                self._pages[partition % self._partition_count] if self._partition_count else 0
                for partition in range(partition_count)
            ]
            self._partition_count = partition_count


class Staging:
    """The staged writes of one job to one map."""

    def __init__(self, client: Client, map_name: str, job_id: str) -> None:
        self.map_name = check_map_name(map_name)
        self.job_id = check_part("job", job_id)
        self._client = client
        self._map = client.map(map_name)
        self._begun = 0
        """The stamp that the master gave to this replace when it began; 0: it has not begun."""
        self._is_dispensable = False
        """Whether there is nothing to replace, because the batch, or a later one, has replaced the map before."""

    def __repr__(self) -> str:
        return f"Staging({self.map_name!r}, {self.job_id!r})"

    def attempt(self, attempt_id: str) -> StagedAttempt:
        """Return an attempt of a task; the id must be unique within the job."""
        check_part("attempt", attempt_id)
        name = hidden_name(self.map_name, self.job_id, HiddenKind.ATTEMPT, attempt_id)
        return StagedAttempt(attempt_id, self._client.map(HiddenName(name)))

    def apply(self, attempts: Sequence[StagedRows], batch: tuple[str, int] | None = None) -> int:
        """Put the rows of these attempts into the map. Return in how many partitions this call did so. Ends the job.

        `batch`: a query and the growing number of its batch. Raises `UsageError` if staged rows are gone: the map has
        not changed, unless they were lost during the call.
        """
        query, number = _checked(batch)
        self._do(StagedStep.CHECK, attempts, query, number)
        return self._do(StagedStep.APPLY, attempts, query, number)

    def prepare_replace(
        self, attempts: Sequence[StagedRows], batch: tuple[str, int] | None = None, schema: str | None = None
    ) -> None:
        """Assemble the rows of these attempts, without the removed keys, into the new content of the map.

        `batch`: as for `apply`. If it, or a later one, has replaced the map before, this call and `decide_replace` do
        nothing. `schema`: of the new content, as the map's setting has it (empty: none), which it becomes with the decision; None: the
        map keeps what it has. Times to live begin now. Raises `UsageError` if another replace began meanwhile, or staged rows are
        gone.
        """
        query, number = _checked(batch)
        begin = Batch(query, number) if query else None
        self._begun = self._ask_master(Replacement.BEGIN, CountReply, begin, schema).count
        self._is_dispensable = not self._begun
        if self._is_dispensable:
            self.drop()
        else:
            self._do(StagedStep.ASSEMBLE, attempts)

    def decide_replace(self) -> None:
        """Replace the content of the map by the prepared one. Returns when every member serves it.

        Raises `UsageError` if another replace was prepared since, or this one waited too long: then nothing has
        changed. Raises it also if this object has prepared nothing.
        """
        if self._is_dispensable:
            return
        if not self._begun:
            raise UsageError(
                f"job {self.job_id} has prepared nothing for map {self.map_name!r}: call prepare_replace first"
            )
        self._ask_master(Replacement.DECIDE, FlagReply)

    def abort(self) -> bool:
        """Drop what is staged or prepared. Return False if the replace was decided before: the new content stays."""
        was_decided = self._ask_master(Replacement.ABORT, FlagReply).flag
        self.drop()
        return not was_decided

    def snapshot(self) -> HiddenName:
        """Keep the map as it is now. Return its hidden name, for `scan_data` of any client; `drop` removes it."""
        self._do(StagedStep.SNAPSHOT, ())
        return HiddenName(hidden_name(self.map_name, self.job_id, HiddenKind.SNAPSHOT))

    def drop(self) -> None:
        """Drop everything that the job has staged or kept, except prepared content. Ends the job."""
        self._do(StagedStep.DROP, ())

    # --- how members are asked -------------------------------------------------------------------------------------

    def _do(self, step: StagedStep, attempts: Sequence[StagedRows], query: str = "", number: int = 0) -> int:
        for each in attempts:
            check_part("attempt", each.attempt)

        def request(partitions: list[int], partition_count: int) -> ChangeStaged:
            # There can be thousands of attempts, and most have staged nothing in these partitions.
            pages = {each.attempt: each.in_partitions(partitions, partition_count) for each in attempts}
            named = [attempt for attempt, staged in pages.items() if any(staged)]
            return ChangeStaged(
                self._client.next_id(), self.map_name, partitions, partition_count, step, self.job_id, named, query, number,
                tuple(pages[attempt] for attempt in named),
            )  # fmt: skip

        what = f"{step.name.lower()} of job {self.job_id} for map {self.map_name!r}"
        most = max(min(PARTITIONS_AT_ONCE, MAX_ATTEMPTS // max(len(attempts), 1)), 1)
        replies = self._map.everywhere(request, CountReply, what, is_write=True, most=most)
        return sum(reply.count for reply in replies)

    def _ask_master(
        self, wish: Replacement, reply_kind: type[R], batch: Batch | None = None, schema: str | None = None
    ) -> R:
        """Send a request about the replace to the master until it succeeds, and return the reply.

        Raises when the time of a call is over: `IndeterminateWrite` for DECIDE, otherwise `UnavailableError`.
        """
        client, what = self._client, f"{wish.name.lower()} of job {self.job_id}, to replace map {self.map_name!r}"
        limit = TimeLimit(client.call_timeout_s)
        may_be_applied = False
        lost: Lost = ()
        while True:
            reply = ErrorReply(0, ErrorCode.UNAVAILABLE, "no member has said who the master is")
            try:
                view = client.members(limit).view
            except UnavailableError as error:
                reply = ErrorReply(0, ErrorCode.UNAVAILABLE, str(error))
            else:
                request = ReplaceContent(
                    client.next_id(), self.map_name, self.job_id, wish, self._begun, batch, schema
                )  # fmt: skip
                reply = client.ask(view.master, request, limit.within_ms, lost)
            if not isinstance(reply, ErrorReply) or reply.code in (ErrorCode.INVALID, ErrorCode.NOT_ENOUGH_MEMBERS):
                return expect(reply, reply_kind, what)
            lost = (*lost, reply.lost) if reply.lost else lost
            may_be_applied = may_be_applied or wish is Replacement.DECIDE
            if limit.is_over or has_ended_members(reply):
                code = ErrorCode.INDETERMINATE if may_be_applied else ErrorCode.UNAVAILABLE
                raise_error(ErrorReply(0, code, reply.text, reply.lost), what)
            time.sleep(ASK_AGAIN_AFTER_S)
