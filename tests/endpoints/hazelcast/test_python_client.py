"""Hazelcast's Python client and Phalanx's own, on one map of one member."""

import asyncio
import datetime as dt
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hazelcast.client import HazelcastClient
from hazelcast.config import IntType
from hazelcast.core import HazelcastJsonValue
from hazelcast.errors import (
    ClientOfflineError,
    HazelcastError,
    IllegalArgumentError,
    IllegalMonitorStateError,
    UnsupportedOperationError,
)
from hazelcast.predicate import true
from hazelcast.security import BasicTokenProvider

import phalanx
from phalanx.client.ask import ask_any
from phalanx.common.errors import CorruptDataError
from phalanx.common.map_settings import MapChange
from phalanx.integrations.hazelcast import SERIALIZERS, FunctionCall
from support.processes import Cluster, wait_for


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("hazelcast"))
    try:
        cluster.start(1, options=("--serve", "hazelcast"))
        yield cluster
    finally:
        cluster.stop()
        print(cluster.logs())


@pytest.fixture(scope="module")
def client(shared_cluster: Cluster) -> Iterator[Any]:
    made = HazelcastClient(
        cluster_name="test",
        cluster_members=[shared_cluster.addresses],
        default_int_type=IntType.LONG,
        custom_serializers=SERIALIZERS,
    )
    yield made
    made.shutdown()


def test_all_calls_on_one_key(client: Any) -> None:
    m = client.get_map("one").blocking()
    assert (m.put("a", 1), m.put("a", 2), m.get("a"), m.remove("a"), m.get("a")) == (None, 1, 2, 2, None)
    assert (m.replace("a", 5), m.put_if_absent("a", 6), m.put_if_absent("a", 7), m.replace("a", 8)) == (
        None,
        None,
        6,
        6,
    )
    assert (m.replace_if_same("a", 6, 9), m.replace_if_same("a", 8, 9)) == (False, True)
    assert (m.remove_if_same("a", 8), m.remove_if_same("a", 9), m.contains_key("a")) == (False, True, False)
    m.set("a", 1)
    assert (m.contains_key("a"), m.contains_value(1), m.contains_value(2), m.evict("a"), m.evict("a")) == (
        True, True, False, True, False,
    )  # fmt: skip
    m.put_transient("a", 3)
    assert (m.delete("a"), m.try_put("a", 4), m.try_remove("a"), m.get_entry_view("a")) == (None, True, True, None)
    assert (m.try_remove("a"), m.delete("a"), m.evict("a"), m.set_ttl("a", 5)) == (False, None, False, False)


def test_entries_expire(client: Any) -> None:
    m = client.get_map("lives").blocking()
    m.put("a", 1, ttl=0.05)
    m.set("b", 1, max_idle=0.05)
    m.put("c", 1, ttl=100)
    assert 0 < m.get_entry_view("c").ttl <= 100_000
    m.put("c", 2)  # for ever again
    assert m.get_entry_view("c").ttl == 2**63 - 1
    assert m.set_ttl("c", 0.05)
    assert not m.set_ttl("absent", 1)
    wait_for(lambda: m.get("a") is m.get("c") is None, "a and c expire")
    wait_for(lambda: m.size() == 0, "b expires", 10)


def test_calls_on_many_keys_and_large_answers(client: Any) -> None:
    m = client.get_map("many").blocking()
    entries = {f"key-{number}": "x" * 1_000 for number in range(3_000)}
    m.put_all(entries)
    assert m.size() == 3_000
    assert m.get_all([*entries, "absent"]) == entries
    assert dict(m.entry_set()) == entries  # some pages of a megabyte
    assert sorted(m.key_set()) == sorted(entries)
    assert m.values() == ["x" * 1_000] * 3_000
    assert not m.is_empty()
    m.clear()
    assert m.is_empty()
    assert m.key_set() == []


def test_values_are_shared_with_native_programs(client: Any, shared_cluster: Cluster) -> None:
    m = client.get_map("types").blocking()
    row = {"title": "Iliad", "when": dt.date(2024, 1, 2), "parts": [1, 2.5, None]}
    m.put("row", row)
    m.put("list", [1, "a"])
    m.put("pickled", {1, 2})
    with shared_cluster.client() as grid:
        native = grid.map("types")
        assert native["row"] == row
        assert native["list"] == [1, "a"]
        native["tuple"] = (1, 2)
        native[5] = "five"
        with pytest.raises(CorruptDataError, match="nothing is ever unpickled"):
            native["pickled"]
    assert m.get("row") == row
    assert m.get("tuple") == [1, 2]
    assert m.get(5) == "five"
    assert m.get("pickled") == {1, 2}


def test_dicts_are_shared_as_json(client: Any, shared_cluster: Cluster) -> None:
    m = client.get_map("json").blocking()
    m.put("theirs", HazelcastJsonValue({"title": "Iliad", "parts": [1, 2.5, None]}))
    with shared_cluster.client() as grid:
        native = grid.map("json", dicts="json")
        assert native["theirs"] == {"title": "Iliad", "parts": [1, 2.5, None]}
        native["ours"] = {"title": "Odyssey"}
        assert native.compare_and_set("ours", {"title": "Odyssey"}, {"title": "Odyssey", "price": 9})
        native.put_all({"a": {"n": 1}, "b": 2})
        assert native.get_all(["a", "b", "theirs"])["a"] == {"n": 1}
        assert dict(native.items())["ours"] == {"title": "Odyssey", "price": 9}
        assert native.pop("b") == 2
        with pytest.raises(phalanx.UsageError, match=r"value\['when'\]: JSON has no datetime.date"):
            native["when"] = {"when": dt.date(2024, 1, 2)}
    assert m.get("ours").loads() == {"title": "Odyssey", "price": 9}
    assert m.get("a").to_string() == '{"n":1}'


def test_a_map_with_the_setting_shares_dicts_with_programs_that_say_nothing(
    client: Any, shared_cluster: Cluster
) -> None:
    """Set while all are connected; every kind of program follows."""
    m = client.get_map("shared dicts").blocking()
    book = {"title": "Iliad", "parts": [1, 2.5, None], "Ж": {"nested": True}}
    with shared_cluster.client() as grid:
        native = grid.map("shared dicts")
        native["before"] = book
        address = shared_cluster.members[0].address
        ask_any(address, "test", lambda inquirer: inquirer.change_map("shared dicts", MapChange(dicts="json")))
        grid.refresh()  # as a client does by itself every few seconds while it makes calls
        native["sync"] = book
        native.put_all({"many": book})
        asyncio.run(_write_with_asyncio(shared_cluster, book))
        config = phalanx.Config(cluster="test", port=0, seeds=(address,), lite=True, serve=("hazelcast",))
        with phalanx.start_member_in_thread(config) as member:
            member.map("shared dicts")["thread"] = book
            assert member.map("shared dicts")["sync"] == book
        for key in ("sync", "many", "asyncio", "thread"):
            assert m.get(key).loads() == book, key
        assert m.get("before") == book  # as rows, which the serialisers of Phalanx read
        m.put("theirs", HazelcastJsonValue(book))
        assert dict(native.items()) == dict.fromkeys(["before", "sync", "many", "asyncio", "thread", "theirs"], book)
        assert native.update("theirs", "merge", {"price": 12})["price"] == 12
        assert m.get("theirs").loads() == book | {"price": 12}
        assert native.pop("theirs") == book | {"price": 12}
        with pytest.raises(phalanx.UsageError, match="dicts='rows' contradicts the map's setting"):
            grid.map("shared dicts", dicts="rows")["sync"]


async def _write_with_asyncio(cluster: Cluster, book: dict[str, Any]) -> None:
    async with await phalanx.connect(cluster.addresses, cluster=cluster.name) as grid:
        m = grid.map("shared dicts")
        await m.put("asyncio", book)  # the first call of the client, which has no table yet
        assert await m.get("sync") == book
        assert await m.get_and_put("asyncio", book) == book


def test_functions_of_members_run_at_the_owner(client: Any) -> None:
    m = client.get_map("functions").blocking()
    assert m.execute_on_key("n", FunctionCall("increment", 5)) == 5
    assert dict(m.execute_on_keys(["n", "o"], FunctionCall("increment", 2))) == {"n": 7, "o": 2}
    assert dict(m.execute_on_entries(FunctionCall("increment", 1))) == {"n": 8, "o": 3}
    m.put_all({f"n{number}": number for number in range(1_000)})
    assert len(m.execute_on_entries(FunctionCall("increment", 1))) == 1_002
    m.put("text", "x")
    with pytest.raises(IllegalArgumentError, match="increment"):
        m.execute_on_entries(FunctionCall("increment", 1))
    with pytest.raises(UnsupportedOperationError, match=r"Map.executeWithPredicate is not supported.*no predicates"):
        m.execute_on_entries(FunctionCall("increment", 1), true())
    with pytest.raises(IllegalArgumentError, match="no function 'nope'"):
        m.execute_on_key("n", FunctionCall("nope"))
    with pytest.raises(UnsupportedOperationError, match="does not run in members"):
        m.execute_on_key("n", "code")


def test_locks_keep_other_threads_out(client: Any) -> None:
    m = client.get_map("locks").blocking()
    m.lock("k")
    m.lock("k")
    told: list[bool] = []

    def other() -> None:
        told.append(m.try_lock("k"))
        told.append(m.try_lock("k", timeout=20))
        m.unlock("k")

    thread = threading.Thread(target=other)
    thread.start()
    wait_for(lambda: told == [False], "the other thread is refused")
    m.unlock("k")
    assert m.is_locked("k")
    m.unlock("k")
    thread.join()
    assert told == [False, True]
    assert not m.is_locked("k")
    with pytest.raises(IllegalMonitorStateError, match="does not hold"):
        m.unlock("k")
    m.lock("k", lease_time=60)
    m.force_unlock("k")
    assert not m.is_locked("k")


def test_a_lease_ends_by_itself(client: Any) -> None:
    m = client.get_map("leases").blocking()
    m.lock("k", lease_time=0.1)
    wait_for(lambda: not m.is_locked("k"), "the lease ends")


def test_maps_are_listed_until_they_are_destroyed(client: Any) -> None:
    empty = client.get_map("empty")
    names = [each.name for each in client.get_distributed_objects()]
    assert "empty" in names
    assert not [name for name in names if name.startswith("phalanx.")]
    empty.destroy()
    assert "empty" not in [each.name for each in client.get_distributed_objects()]


def test_maps_of_phalanx_itself_are_refused(client: Any) -> None:
    with pytest.raises(HazelcastError, match="belong to Phalanx, and programs cannot write into these maps"):
        client.get_map("phalanx.hazelcast.schemas")
    assert client.get_map("phalanx").blocking().put("k", 1) is None


def test_what_is_not_served_leaves_the_connection_unharmed(client: Any) -> None:
    m = client.get_map("one").blocking()
    with pytest.raises(HazelcastError, match="Listener cannot be added"):
        m.add_entry_listener()
    with pytest.raises(UnsupportedOperationError, match="queueService is not supported by Phalanx"):
        client.get_queue("q")
    m.put("still", "here")
    assert m.get("still") == "here"


def test_a_token_lets_in_and_a_wrong_one_does_not(cluster: Cluster, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-of-its-own")
    token.chmod(0o600)
    (member,) = cluster.start(1, options=("--serve", "hazelcast", "--serve-token-file", str(token)))
    for shown, why in (("wrong", "showed no token"), (None, "showed no token")):
        with pytest.raises((ClientOfflineError, HazelcastError)):
            HazelcastClient(
                cluster_name="test", cluster_members=[member.address], cluster_connect_timeout=0.1,
                token_provider=BasicTokenProvider(shown) if shown else None,
            )  # fmt: skip
        assert why in cluster.logs()
    client = HazelcastClient(
        cluster_name="test", cluster_members=[member.address], token_provider=BasicTokenProvider("a-token-of-its-own")
    )
    entries: Any = client.get_map("m").blocking()
    assert entries.put("a", 1) is None
    client.shutdown()
