"""What clients of every kind find when all members have ended, and are back with their folders."""

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from phalanx.codec.values import to_data
from phalanx.common.errors import StaleToken
from restarts.hazelcast_clients import ROW
from restarts.python_clients import EACH, LONG_S
from restarts.restarted_cluster import OPTIONS, Restarted
from support.processes import Cluster
from support.stored_clusters import StoredCluster

CLOCKS_MS = 1_000
"""By so much the clocks of members can differ from that of the test: less than everything is off."""


@pytest.fixture(scope="module", params=["killed", "stopped"])
def restarted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarted]:
    """All members were killed at one moment, or told to stop by an operator, and are back."""
    with ExitStack() as stack:
        members = Cluster(tmp_path_factory.mktemp(request.param))
        stack.callback(shutil.rmtree, members.folder)
        stack.callback(lambda: print(members.logs()))
        stack.callback(members.stop)
        made = Restarted(StoredCluster(members, *OPTIONS), stack)
        made.prepare()
        made.restart(request.param)
        yield made


# --- Phalanx's own clients ----------------------------------------------------------------------------------------------


def test_entries_are_as_they_were_left(restarted: Restarted) -> None:
    python = restarted.python
    assert dict(python.client.map("kept").items()) == python.kept
    assert not any(key in python.client.map("kept") for key in python.removed)
    assert len(python.client.map("cleared")) == 0


def test_entries_expire_while_everything_is_off(restarted: Restarted) -> None:
    client = restarted.python.client
    assert dict(client.map("mortal").items()) == {}
    assert client.map("mortal").get_all(list(range(EACH))) == {}


def test_each_increment_is_answered_once_although_its_program_went_on_throughout(restarted: Restarted) -> None:
    counting = restarted.python.counting
    counting.wait_further(20)
    counting.end()
    for name, answers in counting.answers.items():
        assert answers == list(range(1, len(answers) + 1)), name
        assert restarted.python.client.map("counted")[name] == len(answers)


def test_calls_that_were_carried_out_and_not_answered_are_answered_once(restarted: Restarted) -> None:
    half_done = restarted.python.half_done
    assert {key: answer.result() for key, (answer, _) in half_done.answers.items()} == {
        key: expected for key, (_, expected) in half_done.answers.items()
    }
    assert dict(restarted.python.client.map("half done").items()) == half_done.content


def test_locks_are_held_and_tokens_grow(restarted: Restarted) -> None:
    python = restarted.python
    assert python.held.is_held
    assert python.client.lock("held").status().tokens == (python.held.token,)
    assert python.client.semaphore("permits", 3).status().permits == 3
    with restarted.cluster.client() as other:
        assert not other.lock("held").acquire(wait=0)
        guarded, greatest = other.map("guarded"), max(python.tokens)
        for token in python.tokens:
            with pytest.raises(StaleToken):
                guarded.put("key", "late", fence=token)
        with guarded.lock("key") as lock:
            assert lock.token > greatest
            guarded.put("key", lock.token, fence=lock.token)
        third = other.semaphore("permits", 3)
        assert third.acquire(wait=0)
        assert not other.semaphore("permits", 3).acquire(wait=0)
        abandoned = other.lock("abandoned")
        assert abandoned.acquire(wait=30), "its lease ends"
        assert abandoned.token > greatest
        python.held.release()
        assert other.lock("held").acquire(wait=0)


def test_a_reader_of_a_journal_goes_on_where_it_was(restarted: Restarted) -> None:
    python = restarted.python
    python.client.map("followed")[EACH] = "after"
    assert [(event.kind, event.value, event.old_value) for event in python.read_on()] == [
        ("added", to_data("not read yet"), None),
        ("updated", to_data("after"), to_data("not read yet")),
    ]


def test_jobs_that_had_begun_show_nothing_and_are_done_once(restarted: Restarted) -> None:
    client, jobs = restarted.python.client, restarted.python.jobs
    assert len(client.map("applied")) == 0
    assert dict(client.map("replaced").items()) == dict.fromkeys(range(EACH), "old")
    assert jobs.applied.apply(jobs.rows, batch=("query", 1)) > 0
    jobs.replaced.decide_replace()
    for name in ("applied", "replaced"):
        assert dict(client.map(name).items()) == dict.fromkeys(range(EACH), "new")
    client.map("applied")[0] = "later"
    job, rows = jobs.again()
    assert job.apply(rows, batch=("query", 1)) == 0
    assert client.map("applied")[0] == "later"


# --- redis-py -----------------------------------------------------------------------------------------------------------


def test_redis_clients_find_what_they_wrote(restarted: Restarted) -> None:
    before = restarted.redis
    client, other = before.client, before.other
    assert client.mget(list(before.strings)) == list(before.strings.values())
    assert client.exists(*before.removed) == 0
    assert client.get("count") == "200"
    assert client.incr("count") == 201
    assert client.hgetall("user") == {"name": "Ada", "visits": "42"}
    lived_ms = (time.monotonic() - before.long_since) * 1000
    assert 0 < client.pttl("long") <= LONG_S * 1000 - lived_ms + CLOCKS_MS
    assert other.keys() == ["after"]


def test_locks_of_redis_clients_are_held_until_they_expire(restarted: Restarted) -> None:
    client = restarted.redis.client
    assert client.mget("mortal", "mortal lock") == [None, None]
    assert client.exists("mortal hash") == 0
    assert client.set("mortal lock", "after", nx=True)
    assert not client.set("once", "second", nx=True)
    assert not client.lock("lock", timeout=10).acquire(blocking=False)
    assert restarted.redis.lock.owned()


# --- Hazelcast's client -------------------------------------------------------------------------------------------------


def test_hazelcast_clients_find_what_they_wrote(restarted: Restarted) -> None:
    before = restarted.hazelcast
    client = before.client
    entries = client.get_map("h kept").blocking()
    assert dict(entries.entry_set()) == before.kept | {"long": 1}
    assert not any(entries.contains_key(key) for key in before.removed)
    assert 0 < entries.get_entry_view("long").ttl <= LONG_S * 1000
    assert client.get_map("h mortal").blocking().size() == 0
    assert client.get_map("h counters").blocking().get("count") == 200
    with restarted.cluster.client() as grid:
        assert grid.map("h books")["iliad"] == ROW, "the members have the schema"
        grid.map("h kept")["ours"] = "native"
    assert entries.get("ours") == "native"


def test_locks_of_hazelcast_clients_are_held(restarted: Restarted) -> None:
    before = restarted.hazelcast
    assert before.locks.is_locked("held")
    assert not before.locks.is_locked("released")
    other = before.connect()
    try:
        locks = other.get_map("h locks").blocking()
        assert not locks.try_lock("held")
        assert locks.try_lock("released")
        before.locks.unlock("held")
        assert locks.try_lock("held")
    finally:
        other.shutdown()
