"""Writes of a job that are to be all or nothing: staged in the members, then made the map's in one step.

A job is one run of something that writes (a Spark write, one run of one micro-batch), under a name that no other run
ever has: `new_job_id()`. Its tasks are tried perhaps several times, and several at once; each try is an *attempt* with a
name of its own within the job. Rows of an attempt go into a hidden map, on the members that own their keys, as fast as
`put_all`; nobody sees them there.

    staging = Staging(client, "flights", job)                    # on executors and on the driver, each with its client
    attempt = staging.attempt(name)                              # on an executor
    attempt.put_rows(keys, values, ttl_ms)                       # batch by batch
    attempt.delete_keys(keys)
    rows = attempt.staged()                                      # to the driver, when all is staged
    staging.apply(rows_of_attempts, batch=("query-7", 12))       # on the driver, with those of the attempts that count

Of several rows with one key in one attempt the last counts; of several attempts the one that is named last. What an
attempt has staged says how many pages went into which partition: a member that lacks one refuses, and nothing is done.

*Apply* makes the rows upserts and removals of the map, in one step of each partition, once: asked again it does nothing
where it was done. With a batch, a partition that has applied this number of the query or a later one skips it, whoever
asks. A driver that dies in the middle has applied some partitions and not others: the same batch asked again, by any job
that has staged the same rows, does the rest.

*Replace* puts the rows in the place of all that is in the map: `prepare_replace` on all partitions, then
`decide_replace`, which is one decision of the master. Before it nothing has happened; after it nobody sees the old
content any more. One that is prepared while another one is being prepared takes its turn: the other is then refused.

*Snapshot* is the map as it is, each partition at one moment, under a hidden name that `scan_data` and `get_data` of the
client take. It costs no copies of values. Entries whose time ends are gone from it too.

What a job has staged and neither applied nor dropped goes by itself when nobody has touched it for `staging_ms` of the
members (an hour). Attempts that write on after their job was applied, decided or dropped change nothing: they are told
that the job is over.

Every method raises `UnavailableError` when nothing was done, `IndeterminateWrite` when something may have been: call it
again, it is safe; `UsageError` when it can never be done.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from phalanx.client.packed_rows import put_round, rounds_of
from phalanx.client.sync import Client
from phalanx.client.sync_map import SyncMap
from phalanx.codec.hashing import children_of
from phalanx.codec.rows import rows_by_partition
from phalanx.common.errors import ErrorCode, UnavailableError, UsageError
from phalanx.common.hidden_maps import HiddenKind, HiddenName, StagedStep, check_part, hidden_name
from phalanx.common.map_settings import Batch
from phalanx.grid.replica.staged_steps import REMOVES
from phalanx.maps.grouping import BATCH_KEYS
from phalanx.maps.requests import check_map_name, expect, raise_error
from phalanx.maps.time_limit import TimeLimit
from phalanx.wire.limits import MAX_ATTEMPTS
from phalanx.wire.messages import ChangeStaged, CountReply, ErrorReply, FlagReply, ReplaceContent, Replacement

PARTITIONS_AT_ONCE = 16
"""In one request for a step: all their rows are gone through in one turn of the member."""
NO_VALUE = bytes(4)
"""Where a removal is staged: as long as a value is at least."""
ASK_AGAIN_AFTER_S = 0.02
MOST_QUERY_LENGTH = 200


R = TypeVar("R", CountReply, FlagReply)


def _checked(batch: tuple[str, int] | None) -> tuple[str, int]:
    """A query and the number of its batch; of none, an empty one. Raises `UsageError` for what cannot name a query."""
    query, number = batch if batch is not None else ("", 0)
    if batch is not None and not 0 < len(query) <= MOST_QUERY_LENGTH:
        raise UsageError(f"{query!r} cannot name a query: give 1 to {MOST_QUERY_LENGTH} characters")
    return query, number


def new_job_id() -> str:
    """A name that no other job has."""
    return uuid.uuid4().hex


class StagedRows(NamedTuple):
    """What an attempt has staged, for the one who asks for it to be applied. Goes from process to process."""

    attempt: str
    of: int = 0
    """Partitions that there were; 0: nothing was staged."""
    pages: tuple[int, ...] = ()
    """For each of them, how many pages of rows."""

    def in_partitions(self, partitions: Sequence[int], of: int) -> tuple[int, ...]:
        """Return how many pages each of these partitions must have. All parts of a divided partition have its pages."""
        return tuple(self.pages[partition % self.of] for partition in partitions) if self.of else (0,) * len(partitions)


class StagedAttempt:
    """The rows of one attempt of one task: of one process, and one thread of it."""

    def __init__(self, name: str, rows: SyncMap) -> None:
        self._name = name
        self._rows = rows
        self._of = 0
        self._pages: list[int] = []
        """Of each of so many partitions, how many pages it has taken."""

    def staged(self) -> StagedRows:
        """Return what has been staged until now."""
        return StagedRows(self._name, self._of, tuple(self._pages))

    def put_rows(self, keys: list[bytes], values: list[bytes], ttl_ms: int = 0) -> None:
        """Stage serialised entries; the time that they live (0: for ever) begins when they are applied."""
        if len(keys) != len(values):
            raise UsageError(f"put_rows: {len(keys)} keys and {len(values)} values; give one value for each key")
        of = self._rows.client.partition_table().partition_count
        self.put_packed(rows_by_partition(keys, values, of), of, ttl_ms)

    def put_packed(self, parts: Mapping[int, bytes], of: int, ttl_ms: int = 0) -> None:
        """Stage rows like `put_rows`; they are packed already (`codec.rows`), by their partitions among `of`."""
        if ttl_ms < 0:
            raise UsageError(f"ttl_ms is {ttl_ms}: give 0 (for ever) or more")
        self._put(parts, of, ttl_ms)

    def delete_keys(self, keys: list[bytes]) -> None:
        """Stage removals of serialised keys."""
        of = self._rows.client.partition_table().partition_count
        self._put(rows_by_partition(keys, [NO_VALUE] * len(keys), of), of, REMOVES)

    def _put(self, parts: Mapping[int, bytes], of: int, ttl_ms: int) -> None:
        """Send rows in pages that fit one request to each owner, so each partition takes them one after the other.

        Where a page failed, the same may be asked for again, or another in its place.
        """
        for some in rounds_of(parts, BATCH_KEYS):
            done = put_round(self._rows.client, self._rows.name, some, of, ttl_ms, self._next_page, "staging rows")
            for partition, count in done:
                self._follow_division(count)
                for part in children_of(partition, self._of, count):
                    self._pages[part] += 1

    def _next_page(self, partition: int, of: int) -> int:
        self._follow_division(of)
        return self._pages[partition] + 1

    def _follow_division(self, of: int) -> None:
        """There are more partitions than there were: each has the pages of the one from which it comes."""
        if self._of < of:
            self._pages = [self._pages[partition % self._of] if self._of else 0 for partition in range(of)]
            self._of = of


class Staging:
    """What one job stages for one map."""

    def __init__(self, client: Client, map_name: str, job_id: str) -> None:
        self.map_name = check_map_name(map_name)
        self.job_id = check_part("job", job_id)
        self._client = client
        self._map = client.map(map_name)
        self._begun = 0
        """What the master answered when this replace began; 0: it did not."""
        self._is_dispensable = False
        """Whether there is nothing to replace, for the batch has done so."""

    def __repr__(self) -> str:
        return f"Staging({self.map_name!r}, {self.job_id!r})"

    def attempt(self, attempt_id: str) -> StagedAttempt:
        """An attempt of a task, by a name that no other attempt of the job has."""
        check_part("attempt", attempt_id)
        name = hidden_name(self.map_name, self.job_id, HiddenKind.ATTEMPT, attempt_id)
        return StagedAttempt(attempt_id, self._client.map(HiddenName(name)))

    def apply(self, attempts: Sequence[StagedRows], batch: tuple[str, int] | None = None) -> int:
        """Make the rows of these attempts the map's; in how many partitions that was done now, and not earlier.

        `batch`: a query and the number of its batch, which grows. The job is over then. Raises `UsageError` where rows are
        gone that were staged: the map is as it was, but for rows that go while this is being done.
        """
        query, number = _checked(batch)
        self._do(StagedStep.CHECK, attempts, query, number)
        return self._do(StagedStep.APPLY, attempts, query, number)

    def prepare_replace(self, attempts: Sequence[StagedRows], batch: tuple[str, int] | None = None) -> None:
        """Make the rows of these attempts ready to be all that is in the map. What they remove is not among them.

        `batch`: as for `apply`. Where it has replaced the map, or a later one, nothing is done, now and by `decide_replace`.
        Times to live begin now. Raises `UsageError` if another replace began in the meantime, or rows are gone that were
        staged.
        """
        query, number = _checked(batch)
        self._begun = self._ask_master(Replacement.BEGIN, CountReply, Batch(query, number) if query else None).count
        self._is_dispensable = not self._begun
        if self._is_dispensable:
            self.drop()
        else:
            self._do(StagedStep.ASSEMBLE, attempts)

    def decide_replace(self) -> None:
        """Put what was prepared in the place of what is in the map. Returns when every member serves it.

        Raises `UsageError` if another replace was prepared since, or this one waited too long: nothing has happened; and if
        it was not prepared by this object.
        """
        if self._is_dispensable:
            return
        if not self._begun:
            raise UsageError(
                f"job {self.job_id} has prepared nothing for map {self.map_name!r}: call prepare_replace first"
            )
        self._ask_master(Replacement.DECIDE, FlagReply)

    def abort(self) -> bool:
        """Give up what is staged or prepared. False: it was decided already, and the new content stands."""
        was_decided = self._ask_master(Replacement.ABORT, FlagReply).flag
        self.drop()
        return not was_decided

    def snapshot(self) -> HiddenName:
        """Keep the map as it is now, under a name for `scan_data` of any client; to be given up with `drop`."""
        self._do(StagedStep.SNAPSHOT, ())
        return HiddenName(hidden_name(self.map_name, self.job_id, HiddenKind.SNAPSHOT))

    def drop(self) -> None:
        """Drop all that the job has staged or kept, but for what is prepared; it is over then."""
        self._do(StagedStep.DROP, ())

    # --- how members are asked -------------------------------------------------------------------------------------

    def _do(self, step: StagedStep, attempts: Sequence[StagedRows], query: str = "", number: int = 0) -> int:
        for each in attempts:
            check_part("attempt", each.attempt)

        def request(partitions: list[int], of: int) -> ChangeStaged:
            # Of thousands of attempts most have nothing in these partitions.
            pages = {each.attempt: each.in_partitions(partitions, of) for each in attempts}
            named = [attempt for attempt, staged in pages.items() if any(staged)]
            return ChangeStaged(
                self._client.next_id(), self.map_name, partitions, of, step, self.job_id, named, query, number,
                tuple(pages[attempt] for attempt in named),
            )  # fmt: skip

        what = f"{step.name.lower()} of job {self.job_id} for map {self.map_name!r}"
        most = max(min(PARTITIONS_AT_ONCE, MAX_ATTEMPTS // max(len(attempts), 1)), 1)
        replies = self._map.everywhere(request, CountReply, what, is_write=True, most=most)
        return sum(reply.count for reply in replies)

    def _ask_master(self, wish: Replacement, reply_kind: type[R], batch: Batch | None = None) -> R:
        """Have the master fulfil a wish: what it answers. Asked again until it is fulfilled, or
        for as long as a call may take: then what became of it is not known, but for one that refused all the time."""
        client, what = self._client, f"{wish.name.lower()} of job {self.job_id}, to replace map {self.map_name!r}"
        limit = TimeLimit(client.call_timeout_s)
        may_be_applied = False
        while True:
            reply = ErrorReply(0, ErrorCode.UNAVAILABLE, "no member told who the master is")
            try:
                master = client.members(limit).view.master
            except UnavailableError as error:
                reply = ErrorReply(0, ErrorCode.UNAVAILABLE, str(error))
            else:
                request = ReplaceContent(client.next_id(), self.map_name, self.job_id, wish, self._begun, batch)
                reply = client.ask(master, request, limit.within_ms)
            if not isinstance(reply, ErrorReply) or reply.code in (ErrorCode.INVALID, ErrorCode.NOT_ENOUGH_MEMBERS):
                return expect(reply, reply_kind, what)
            may_be_applied = may_be_applied or wish is Replacement.DECIDE
            if limit.is_over:
                code = ErrorCode.INDETERMINATE if may_be_applied else ErrorCode.UNAVAILABLE
                raise_error(ErrorReply(0, code, reply.text), what)
            time.sleep(ASK_AGAIN_AFTER_S)
