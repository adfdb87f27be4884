"""Writes of a job that are to be all or nothing: staged in the members, then made the map's in one step.

A job is one run of something that writes (a Spark write, one run of one micro-batch), under a name that no other run
ever has: `new_job_id()`. Its tasks are tried perhaps several times, and several at once; each try is an *attempt* with a
name of its own within the job. Rows of an attempt go into a hidden map, on the members that own their keys, as fast as
`put_all`; nobody sees them there.

    staging = Staging(client, "flights", job)                    # on executors and on the driver, each with its client
    staging.attempt(attempt).put_rows(keys, values, ttl_ms)      # on an executor, batch by batch
    staging.attempt(attempt).delete_keys(keys)
    staging.apply(attempts, batch=("query-7", 12))               # on the driver, with the attempts that count

Of several rows with one key in one attempt the last counts; of several attempts the one that is named last.

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
from collections.abc import Sequence

from phalanx.client.sync import Client
from phalanx.client.sync_map import SyncMap
from phalanx.common.errors import ErrorCode, UnavailableError, UsageError
from phalanx.common.hidden import HiddenName, Kind, Step, check_part, hidden_name
from phalanx.grid.steps import REMOVES
from phalanx.maps.requests import check_map_name, expect, raise_error
from phalanx.wire.messages import ChangeStaged, CountReply, ErrorReply, FlagReply, ReplaceContent, Replacement

PARTITIONS_AT_ONCE = 16
"""In one request for a step: all their rows are gone through in one turn of the member."""
NO_VALUE = bytes(4)
"""Where a removal is staged: as long as a value is at least."""
ASK_AGAIN_AFTER_S = 0.02
MOST_QUERY_LENGTH = 200


def new_job_id() -> str:
    """A name that no other job has."""
    return uuid.uuid4().hex


class StagedAttempt:
    """The rows of one attempt of one task. Not shared between threads."""

    def __init__(self, rows: SyncMap) -> None:
        self._rows = rows

    def put_rows(self, keys: list[bytes], values: list[bytes], ttl_ms: int = 0) -> None:
        """Stage serialised entries; the time that they live (0: for ever) begins when they are applied."""
        if ttl_ms < 0:
            raise UsageError(f"ttl_ms is {ttl_ms}: give 0 (for ever) or more")
        self._rows.put_data(keys, values, ttl_ms)

    def delete_keys(self, keys: list[bytes]) -> None:
        """Stage removals of serialised keys."""
        self._rows.put_data(keys, [NO_VALUE] * len(keys), REMOVES)


class Staging:
    """What one job stages for one map."""

    def __init__(self, client: Client, map_name: str, job_id: str) -> None:
        self.map_name = check_map_name(map_name)
        self.job_id = check_part("job", job_id)
        self._client = client
        self._map = client.map(map_name)

    def __repr__(self) -> str:
        return f"Staging({self.map_name!r}, {self.job_id!r})"

    def attempt(self, attempt_id: str) -> StagedAttempt:
        """An attempt of a task, by a name that no other attempt of the job has."""
        check_part("attempt", attempt_id)
        name = hidden_name(self.map_name, self.job_id, Kind.ATTEMPT, attempt_id)
        return StagedAttempt(self._client.map(HiddenName(name)))

    def apply(self, attempts: Sequence[str], batch: tuple[str, int] | None = None) -> int:
        """Make the rows of these attempts the map's; in how many partitions that was done now, and not earlier.

        `batch`: a query and the number of its batch, which grows. The job is over then.
        """
        query, number = batch if batch is not None else ("", 0)
        if batch is not None and not 0 < len(query) <= MOST_QUERY_LENGTH:
            raise UsageError(f"{query!r} cannot name a query: give 1 to {MOST_QUERY_LENGTH} characters")
        return self._do(Step.APPLY, attempts, query, number)

    def prepare_replace(self, attempts: Sequence[str]) -> None:
        """Make the rows of these attempts ready to be all that is in the map. What they remove is not among them.

        Times to live begin now. Raises `UsageError` if another replace began in the meantime.
        """
        self._ask_master(Replacement.BEGIN)
        self._do(Step.ASSEMBLE, attempts)

    def decide_replace(self) -> None:
        """Put what was prepared in the place of what is in the map. Returns when every member serves it.

        Raises `UsageError` if another replace was prepared since, or this one waited too long: nothing has happened.
        """
        self._ask_master(Replacement.DECIDE)

    def abort(self) -> bool:
        """Give up what is staged or prepared. False: it was decided already, and the new content stands."""
        was_decided = self._ask_master(Replacement.ABORT)
        self.drop()
        return not was_decided

    def snapshot(self) -> HiddenName:
        """Keep the map as it is now, under a name for `scan_data` of any client; to be given up with `drop`."""
        self._do(Step.SNAPSHOT, ())
        return HiddenName(hidden_name(self.map_name, self.job_id, Kind.SNAPSHOT))

    def drop(self) -> None:
        """Drop all that the job has staged or kept, but for what is prepared; it is over then."""
        self._do(Step.DROP, ())

    # --- how members are asked -------------------------------------------------------------------------------------

    def _do(self, step: Step, attempts: Sequence[str], query: str = "", number: int = 0) -> int:
        named = [check_part("attempt", attempt) for attempt in attempts]

        def request(partitions: list[int], of: int) -> ChangeStaged:
            return ChangeStaged(
                self._client.next_id(), self.map_name, partitions, of, step, self.job_id, named, query, number
            )

        what = f"{step.name.lower()} of job {self.job_id} for map {self.map_name!r}"
        replies = self._map.everywhere(request, CountReply, what, is_write=True, most=PARTITIONS_AT_ONCE)
        return sum(reply.count for reply in replies)

    def _ask_master(self, wish: Replacement) -> bool:
        """Have the master fulfil a wish: whether the job's content was decided upon. Asked again until it is fulfilled, or
        for as long as a call may take: then what became of it is not known, but for one that refused all the time."""
        client, what = self._client, f"{wish.name.lower()} of job {self.job_id}, to replace map {self.map_name!r}"
        deadline = time.monotonic() + client.call_timeout_s
        may_be_done = False
        while True:
            reply = ErrorReply(0, ErrorCode.UNAVAILABLE, "no member told who the master is")
            try:
                master = client.members().view.master
            except UnavailableError as error:
                reply = ErrorReply(0, ErrorCode.UNAVAILABLE, str(error))
            else:
                reply = client.ask(master, ReplaceContent(client.next_id(), self.map_name, self.job_id, wish))
            if not isinstance(reply, ErrorReply) or reply.code in (ErrorCode.INVALID, ErrorCode.NOT_ENOUGH_MEMBERS):
                return expect(reply, FlagReply, what).flag
            may_be_done = may_be_done or wish is Replacement.DECIDE
            if time.monotonic() >= deadline:
                code = ErrorCode.INDETERMINATE if may_be_done else ErrorCode.UNAVAILABLE
                raise_error(ErrorReply(0, code, reply.text), what)
            time.sleep(ASK_AGAIN_AFTER_S)
