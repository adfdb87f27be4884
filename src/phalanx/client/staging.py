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

import uuid
from collections.abc import Sequence

from phalanx.client.sync import Client
from phalanx.common.hidden import HiddenName, check_part
from phalanx.maps.requests import check_map_name


def new_job_id() -> str:
    """A name that no other job has."""
    return uuid.uuid4().hex


class StagedAttempt:
    """The rows of one attempt of one task."""

    def put_rows(self, keys: list[bytes], values: list[bytes], ttl_ms: int = 0) -> None:
        """Stage serialised entries; the time that they live (0: for ever) begins when they are applied."""
        raise NotImplementedError

    def delete_keys(self, keys: list[bytes]) -> None:
        """Stage removals of serialised keys."""
        raise NotImplementedError


class Staging:
    """What one job stages for one map."""

    def __init__(self, client: Client, map_name: str, job_id: str) -> None:
        self.map_name = check_map_name(map_name)
        self.job_id = check_part("job", job_id)
        self._client = client

    def attempt(self, attempt_id: str) -> StagedAttempt:
        """An attempt of a task, by a name that no other attempt of the job has."""
        raise NotImplementedError

    def apply(self, attempts: Sequence[str], batch: tuple[str, int] | None = None) -> int:
        """Make the rows of these attempts the map's; in how many partitions that was done now, and not earlier.

        `batch`: a query and the number of its batch, which grows. The job is over then.
        """
        raise NotImplementedError

    def prepare_replace(self, attempts: Sequence[str]) -> None:
        """Make the rows of these attempts ready to be all that is in the map. Deletes among them count for nothing."""
        raise NotImplementedError

    def decide_replace(self) -> None:
        """Put what was prepared in the place of what is in the map. Returns when every member knows.

        Raises `UsageError` if another replace was prepared since, or this one waited too long: nothing has happened.
        """
        raise NotImplementedError

    def abort(self) -> bool:
        """Give up what is staged or prepared. False: it was decided already, and the new content stands."""
        raise NotImplementedError

    def snapshot(self) -> HiddenName:
        """Keep the map as it is now, under a name for `scan_data` of any client; to be given up with `drop`."""
        raise NotImplementedError

    def drop(self) -> None:
        """Drop all that the job has staged or kept, but for what is prepared; it is over then."""
        raise NotImplementedError
