"""Jobs that stage what they write, in a cluster of processes: with one of them killed half way."""

import pytest

from phalanx.client.staging import StagedAttempt, Staging, new_job_id
from phalanx.client.sync import Client
from phalanx.codec.values import keys_to_data, to_key_data, values_to_data
from phalanx.common.errors import UsageError
from support.processes import Cluster

ROWS = 2_000


def stage(job: Staging, attempt: str, keys: range, value: object) -> StagedAttempt:
    rows = job.attempt(attempt)
    rows.put_rows(keys_to_data(list(keys)), values_to_data([value] * len(keys)))
    return rows


def content(grid: Client) -> dict[object, object]:
    return dict(grid.map("m").iter_items())


def test_a_job_is_applied_once_although_an_owner_is_killed(cluster: Cluster) -> None:
    cluster.start(3)
    with cluster.client() as grid:
        grid.map("m").put_all(dict.fromkeys(range(10), "old"))
        job = Staging(grid, "m", new_job_id())
        rows = stage(job, "t1", range(5, ROWS), "new")
        stage(job, "t1-again", range(ROWS), "never")
        rows.delete_keys([to_key_data(0)])
        cluster.wait_redundant()
        cluster.kill(cluster.members[1])
        assert job.apply([rows.staged()], batch=("q", 1)) > 0
        expected = dict.fromkeys(range(1, 5), "old") | dict.fromkeys(range(5, ROWS), "new")
        assert content(grid) == expected
        grid.map("m")[7] = "later"
        again = Staging(grid, "m", new_job_id())
        same = stage(again, "t1", range(5, ROWS), "new")
        assert (job.apply([rows.staged()], batch=("q", 1)), again.apply([same.staged()], batch=("q", 1))) == (0, 0)
        assert content(grid) == expected | {7: "later"}
        with pytest.raises(UsageError, match="is over: nothing can be staged"):
            stage(job, "t1-again", range(3), "never")
        assert grid.map_names() == ["m"]


def test_a_map_is_replaced_by_one_decision_and_a_snapshot_shows_what_it_was(cluster: Cluster) -> None:
    cluster.start(3)
    with cluster.client() as grid:
        grid.map("m").put_all(dict.fromkeys(range(100), "old"))
        kept = Staging(grid, "m", new_job_id())
        name = kept.snapshot()
        given_up, job = (Staging(grid, "m", new_job_id()) for _ in range(2))
        for each in (given_up, job):
            each.prepare_replace([stage(each, "t1", range(50, ROWS), "new").staged()])
        with pytest.raises(UsageError, match="another job began to"):
            given_up.decide_replace()
        assert given_up.abort()
        cluster.wait_redundant()
        cluster.kill(cluster.members[0])
        job.decide_replace()
        assert content(grid) == dict.fromkeys(range(50, ROWS), "new")
        assert not job.abort(), "it was decided"
        assert sum(len(keys) for keys, _ in grid.scan_data(name)) == 100
        kept.drop()
        assert sum(len(keys) for keys, _ in grid.scan_data(name)) == 0
        assert content(grid) == dict.fromkeys(range(50, ROWS), "new")
