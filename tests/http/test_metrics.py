"""The text for Prometheus says what the member counted, by its conventions, and costs the member little."""

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.exceptions
from hazelcast.client import HazelcastClient
from prometheus_client.parser import text_string_to_metric_families

import phalanx
from phalanx.common.ids import host_and_port
from phalanx.grid.serving import updates
from phalanx.http import metrics, shared_answer
from phalanx.http.metrics import Metrics
from phalanx.runtime.process.processes import start_member_process
from phalanx.testing import LocalCluster
from phalanx.wire.figures import MOST_MAPS, OTHER
from support.http_asking import ask, listening, sample, until
from support.promtool import check

WRITTEN = 'a "name"\\with\nall {that} is=special, \u2603'


@pytest.fixture(autouse=True)
def made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each scrape sees what was done before it."""
    monkeypatch.setattr(shared_answer, "VALID_S", 0.0)


def scraped(port: int) -> str:
    answer = ask(port, "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return answer.text


def test_prometheus_own_checker_finds_nothing_wrong() -> None:
    with listening(maps={"bounded": phalanx.MapConfig(max_entries=300, journal_capacity=50)}) as member:
        with phalanx.Client([member.address]) as client:
            for name in ("flights", WRITTEN, "bounded"):
                client.map(name).put_all(dict.fromkeys(range(1000), "value"))
            client.map("flights").get(7)
        text = scraped(member.http_port)
        assert check("check metrics", text.encode()) == ""
        assert len(list(text_string_to_metric_families(text))) > 40
        for line in text.splitlines():
            assert line.startswith(("#", "phalanx_", "process_", "python_")), line


def test_the_checker_would_find_it() -> None:
    """Else the test above could not fail."""
    assert check("check metrics", b"# TYPE phalanx_calls counter\nphalanx_calls 1\n") != ""


def test_calls_of_redis_clients_count_as_those_of_native_ones() -> None:
    with listening(serve=("redis",)) as member:
        host, port = host_and_port(member.address)
        with redis.Redis(host, port) as client:
            for number in range(30):
                client.set(f"k{number}", "1")
            for number in range(20):
                client.get(f"k{number}")
            client.pipeline(transaction=False).incr("k0").incr("n").append("k0", "x").execute()
            with pytest.raises(redis.exceptions.ResponseError):
                client.incr("k0")
            client.mget([f"k{number}" for number in range(300)])
            client.dbsize()
        text = scraped(member.http_port)
        told = {operation: sample(text, "phalanx_call_duration_seconds_count", map="redis0", operation=operation)
                for operation in ("put", "get", "update_value")}  # fmt: skip
        assert told["put"] == 30
        assert told["get"] == 20
        assert told["update_value"] == 4
        assert sample(text, "phalanx_call_errors_total", map="redis0", operation="update_value", error="invalid") == 1
        assert sample(text, "phalanx_call_duration_seconds_count", map="redis0", operation="get_all") >= 1
        assert sample(text, "phalanx_call_duration_seconds_count", map="redis0", operation="size_of") >= 1
        seconds = sample(text, "phalanx_call_duration_seconds_sum", map="redis0", operation="get")
        assert 0 < seconds < 5


def test_calls_of_hazelcast_clients_count_as_those_of_native_ones() -> None:
    with listening(serve=("hazelcast",)) as member:
        client = HazelcastClient(cluster_name="phalanx", cluster_members=[member.address], cluster_connect_timeout=20)
        try:
            shared: Any = client.get_map("shared").blocking()
            for number in range(30):
                shared.put(f"k{number}", "1")
            shared.get("k0")
            found = shared.get_all([f"k{number}" for number in range(30)])
        finally:
            client.shutdown()
        assert len(found) == 30
        text = scraped(member.http_port)
        told = {operation: sample(text, "phalanx_call_duration_seconds_count", map="shared", operation=operation)
                for operation in ("update_value", "get", "get_all")}  # fmt: skip
        assert told["update_value"] == 30, "a put answers with the value before, as get_and_put does"
        assert told["get"] == 1
        assert 1 <= told["get_all"] <= 30, "the client asks by partition"


def test_calls_count_by_map_and_operation_with_their_durations_and_errors() -> None:
    with listening() as member, phalanx.Client([member.address]) as client:
        flights = client.map("flights")
        for number in range(30):
            flights.put(number, "EWR")
        for number in range(20):
            flights.get(number)
        with pytest.raises(phalanx.UsageError):
            flights.update("UA1", "no such function")
        text = scraped(member.http_port)
        count = "phalanx_call_duration_seconds_count"
        assert sample(text, count, map="flights", operation="get") == 20
        assert sample(text, count, map="flights", operation="put") == 30
        ends = [line for line in text.splitlines() if line.startswith("phalanx_call_duration_seconds_bucket{")]
        ends = [line for line in ends if 'map="flights",operation="put"' in line]
        values = [float(line.rpartition(" ")[2]) for line in ends]
        assert values == sorted(values)
        assert values[-1] == 30
        assert 0 < sample(text, "phalanx_call_duration_seconds_sum", map="flights", operation="put") < 30
        assert sample(text, "phalanx_call_errors_total", error="invalid", map="flights", operation="update_value") == 1
        assert sample(text, "phalanx_connections", peer="client") == 1
        assert sample(text, "phalanx_received_bytes_total", peer="client") > 30 * 20


def test_replicas_maps_and_members_are_what_they_are_elsewhere() -> None:
    with LocalCluster(1) as cluster, phalanx.start_member_in_thread(cluster.config(http_port=0)) as member:
        member.map("flights").put_all(dict.fromkeys(range(500), "value"))
        cluster.until_whole()
        until(member.http_port, "/readyz", 200)
        told, text = ask(member.http_port, "/api/partitions").json, scraped(member.http_port)
        [mine] = [each for each in told["members"] if each["address"] == member.address]
        assert sample(text, "phalanx_members") == 2
        assert sample(text, "phalanx_partitions", role="owner") == mine["owned"]
        assert sample(text, "phalanx_partitions", role="backup") == mine["backups"]
        entries = [sample(text, "phalanx_map_entries", map="flights", role=role) for role in ("owner", "backup")]
        assert sum(entries) == mine["entries"] == 500
        sizes = [sample(text, "phalanx_map_bytes", map="flights", role=role) for role in ("owner", "backup")]
        assert sum(sizes) == mine["bytes"]
        assert sample(text, "phalanx_ready") == 1
        assert sample(text, "phalanx_partitions_only_here") == 0
        cluster.kill("A")
        cluster_text = ""
        for _ in range(500):
            cluster_text = scraped(member.http_port)
            if sample(cluster_text, "phalanx_members") == 1:
                break
        assert sample(cluster_text, "phalanx_members") == 1
        assert sample(cluster_text, "phalanx_partitions_only_here") == sample(
            cluster_text, "phalanx_partitions", role="owner"
        )
        assert sample(cluster_text, "phalanx_master") == 1
        member.stop(drain=False)  # A has the backups, and it would wait for A


def test_requests_whose_function_fails_are_counted_by_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(value: bytes | None) -> object:
        raise MemoryError

    monkeypatch.setitem(updates.BUILT_IN, "touch", fail)
    with LocalCluster(1) as cluster, phalanx.start_member_in_thread(cluster.config(http_port=0)) as member:
        with pytest.raises(phalanx.UsageError, match="touch failed with MemoryError"):
            member.map("m").touch("k", 10)
        cluster.kill("A")
        for _ in range(2):
            with pytest.raises(phalanx.UsageError, match="touch failed with MemoryError"):
                member.map("m").touch("k", 10)
        assert sample(scraped(member.http_port), "phalanx_requests_failed_total", kind="update_value") >= 2


def test_what_a_member_thinks_of_others_is_told() -> None:
    with (
        LocalCluster(2, heartbeat_timeout_ms=60_000) as cluster,
        phalanx.start_member_in_thread(cluster.config(http_port=0, heartbeat_timeout_ms=60_000)) as member,
    ):
        text = scraped(member.http_port)
        assert sample(text, "phalanx_watched_members", trust="trusted") == 2
        assert sample(text, "phalanx_watched_members", trust="suspected") == 0
        before = sample(text, "phalanx_longest_silence_seconds")
        cluster.hang("B")
        until = time.monotonic() + 20
        while (silent_s := sample(scraped(member.http_port), "phalanx_longest_silence_seconds")) < before + 2:
            assert time.monotonic() < until, silent_s
            time.sleep(0.1)
        assert 0 < sample(scraped(member.http_port), "phalanx_longest_silence_ratio") < 1
        cluster.resume("B")


def test_locks_and_moves_are_told() -> None:
    with listening() as alone:
        with alone.lock("nightly"):
            text = scraped(alone.http_port)
            assert (sample(text, "phalanx_locks"), sample(text, "phalanx_lock_waiters")) == (1, 0)
            assert (
                sample(text, "phalanx_waiting_requests") == sample(text, "phalanx_waiting_requests_refused_total") == 0
            )
        assert sample(scraped(alone.http_port), "phalanx_cluster_rebalancing_copied_bytes") == 0
        alone.map("flights").put_all(dict.fromkeys(range(500), "value"))
        with phalanx.start_member_in_thread(phalanx.Config(port=0, seeds=[alone.address])) as other:
            until = time.monotonic() + 20
            while not sample(text := scraped(alone.http_port), "phalanx_cluster_rebalancing_copied_bytes"):
                assert time.monotonic() < until, (text, other)
                time.sleep(0.1)
            assert sample(text, "phalanx_cluster_rebalancing_duration_seconds") > 0


def test_bytes_on_own_connections_to_members_and_durations_of_moves_are_told() -> None:
    with listening() as alone:
        alone.map("flights").put_all(dict.fromkeys(range(500), bytes(1_000)))
        text = scraped(alone.http_port)
        assert sample(text, "phalanx_links") == 0
        assert sample(text, "phalanx_sent_bytes_total", peer="member") == 0
        assert sample(text, "phalanx_migration_duration_seconds_count") == 0
        with listening(seeds=[alone.address]) as other:
            until = time.monotonic() + 20
            while not sample(scraped(alone.http_port), "phalanx_cluster_whole"):
                assert time.monotonic() < until
                time.sleep(0.1)
            text, there = scraped(alone.http_port), scraped(other.http_port)
            moved = sample(text, "phalanx_migration_duration_seconds_count")
            assert moved == sample(text, "phalanx_events_total", event="migration_committed") > 0
            copied = sample(text, "phalanx_migration_copy_duration_seconds_count")
            assert copied == sample(text, "phalanx_events_total", event="migration_copied") > 0
            assert sample(there, "phalanx_migration_duration_seconds_count") == 0
            for each in (text, there):
                assert sample(each, "phalanx_links") == 1
            sent = sample(text, "phalanx_sent_bytes_total", peer="member")
            assert sent > 500 * 1_000
            assert sample(there, "phalanx_received_bytes_total", peer="member") >= sent / 2
        until = time.monotonic() + 20
        while sample(text := scraped(alone.http_port), "phalanx_links"):
            assert time.monotonic() < until
            time.sleep(0.1)
        assert sample(text, "phalanx_sent_bytes_total", peer="member") >= sent, "closed connections count on"
        assert sample(text, "phalanx_members_lost_total") == 0


def test_merges_after_a_split_are_told() -> None:
    with LocalCluster(3, http_port=0) as cluster:
        cluster["A"].map("m").put_all(dict.fromkeys(range(100), "before"))
        cluster.cut("A,B|C")
        cluster.until_whole()
        assert sum(sample(scraped(each.http_port), "phalanx_members_lost_total") for each in cluster) == 3
        for name in ("A", "C"):
            cluster[name].map("m").put_all(dict.fromkeys(range(100), name))
            time.sleep(0.01)  # stamps have milliseconds: what C writes is later at each member of the other side
        cluster["C"].map("m").put_all(dict.fromkeys(range(100, 140), "C"))
        cluster.heal()
        cluster.until_whole()

        def told(name: str, **labels: str) -> float:
            return sum(sample(scraped(each.http_port), name, **labels) for each in cluster)

        until = time.monotonic() + 20
        while not told("phalanx_merges_ended_total"):
            assert time.monotonic() < until
            time.sleep(0.1)
        assert told("phalanx_merges_started_total") == 1
        assert told("phalanx_merge_entries_sent_total") == 140
        assert told("phalanx_merge_conflicts_total", winner="kept") == 100
        assert told("phalanx_merge_conflicts_total", winner="here") == 0
        assert told("phalanx_merge_entries_taken_total") == 140
        assert cluster["A"].map("m")[0] == "C"


def test_evictions_and_expiries_are_counted() -> None:
    with listening(maps={"bounded": phalanx.MapConfig(max_entries=271)}) as member:
        member.map("bounded").put_all(dict.fromkeys(range(3000), "value"))
        member.map("short").put("UA1", "EWR", ttl=0.05)
        for _ in range(400):
            text = scraped(member.http_port)
            if 'phalanx_map_expirations_total{map="short"} 1.0' in text:
                break
        assert sample(text, "phalanx_map_expirations_total", map="short") == 1
        left = sample(text, "phalanx_map_entries", map="bounded", role="owner")
        assert left < 1_000
        assert sample(text, "phalanx_map_evictions_total", map="bounded") == 3_000 - left


def test_many_maps_do_not_make_many_samples() -> None:
    with listening() as member, phalanx.Client([member.address]) as client:
        for number in range(2 * MOST_MAPS):
            client.map(f"map {number}").put_all(dict.fromkeys(range(3 if number else 90), "value"))
        text = scraped(member.http_port)
        names = {
            line for line in text.splitlines() if line.startswith("phalanx_map_entries{") and 'role="owner"' in line
        }
        assert len(names) == MOST_MAPS + 1
        assert sample(text, "phalanx_map_entries", map=OTHER, role="owner") == 3 * MOST_MAPS
        assert sample(text, "phalanx_map_entries", map="map 0", role="owner") == 90, "the largest ones are kept apart"
        calls = [line for line in text.splitlines() if line.startswith("phalanx_call_duration_seconds_count{")]
        by_map = [line for line in calls if 'operation="put_all"' in line]
        assert len(by_map) == MOST_MAPS + 1 - len([line for line in calls if 'map=""' in line])
        assert sum(float(line.rpartition(" ")[2]) for line in by_map) == 2 * MOST_MAPS


def test_who_asks_at_once_gets_one_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_answer, "VALID_S", 60.0)
    made = []
    make = Metrics._make

    async def count(self: Metrics) -> bytes:
        made.append(1)
        await asyncio.sleep(0.2)
        return await make(self)

    monkeypatch.setattr(Metrics, "_make", count)
    with listening() as member, ThreadPoolExecutor(20) as pool:
        texts = set(pool.map(lambda _: scraped(member.http_port), range(40)))
        assert (len(texts), len(made)) == (1, 1)


def test_a_text_is_written_in_pieces_with_turns_of_the_loop_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one piece, 50 maps with ten operations each would keep the member from its work for ten milliseconds."""
    monkeypatch.setattr(metrics, "SAMPLES_AT_ONCE", 7)
    with listening() as member, phalanx.Client([member.address]) as client:
        for number in range(20):
            client.map(f"map {number}").put(1, 2)
        text = scraped(member.http_port)
        heads = [line for line in text.splitlines() if line.startswith("# TYPE")]
        assert len(heads) == len(set(heads))
        assert check("check metrics", text.encode()) == ""
        assert (
            len([line for line in text.splitlines() if "_seconds_count{" in line and 'operation="put"' in line]) == 20
        )


def test_a_member_without_the_port_counts_nothing() -> None:
    with phalanx.start_member_in_thread(phalanx.Config(port=0)) as member:
        with phalanx.Client([member.address]) as client:
            client.map("flights").put(1, 2)
        assert member._here()._statistics is None


def test_a_process_tells_of_itself(tmp_path: Path) -> None:
    with start_member_process(tmp_path / "log", options=["--http-port", "0"]) as process:
        process.wait_ready()
        text = scraped(json.loads(process.ready_line)["http_port"])
        assert sample(text, "process_resident_memory_bytes") > 10_000_000
        assert sample(text, "phalanx_memory_limit_bytes") > 0
        assert sample(text, "phalanx_loop_lag_seconds_count") >= 0
        assert 'phalanx_events_total{event="joined"} 1.0' in text
