"""Protected maps in a real cluster of three: what operators set and see, and what each kind of caller is told."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import phalanx
from phalanx.client.blocking.sync_map import SyncMap
from phalanx_spark.connector.grid import connect as spark_connect
from phalanx_spark.connector.options import parse_options
from support.commands import Ask, Command, asker
from support.processes import Cluster, wait_for

SETTINGS = """
[maps.orders]
minimum_members = 3

[maps."audit*"]
minimum_members = 2
protects = "writes"
merge_policy = "put-if-absent"
"""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("three")
    (folder / "maps.toml").write_text(SETTINGS)
    cluster = Cluster(folder, "three")
    try:
        cluster.start(1, options=("--config", str(folder / "maps.toml")))
        cluster.start(2)
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def ask(phalanx_command: Command, three: Cluster) -> Ask:
    return asker(phalanx_command, three)


@pytest.mark.parametrize("at", [0, 2])
def test_what_the_first_member_was_configured_with_holds_for_all(ask: Ask, at: int) -> None:
    told = ask("map", "settings", "--json", at=at)
    assert list(told) == ["audit*", "orders", "(all other maps)"]
    assert told["orders"]["protection"] == {"on": True, "minimum": 3, "majority": False, "reads": True, "writes": True}
    assert told["audit*"]["merge_policy"] == "put-if-absent"
    audit = ask("map", "settings", "audit-7", at=at)
    assert "at least 2 members for writes" in audit
    assert "put-if-absent" in audit
    assert "1 synchronous and 0 asynchronous" in audit
    assert ask("map", "settings", "other", "--json", at=at)["other"]["protection"]["on"] is False


def test_settings_are_changed_one_by_one_through_any_member(ask: Ask) -> None:
    assert "at least 2 members and the majority of the last stable view for reads" in ask(
        "map", "protect", "prices", "--minimum", "2", "--majority", "--reads", at=1
    )
    assert "merge policy discard" in ask("map", "merge-policy", "prices", "discard", at=2)
    ask("map", "backups", "prices", "--sync", "2")
    told = ask("map", "settings", "prices", "--json")["prices"]
    assert told == {
        "backups": {"sync": 2, "async": 0},
        "protection": {"on": True, "minimum": 2, "majority": True, "reads": True, "writes": False},
        "merge_policy": "discard",
        "max_entries": 0,
        "max_bytes": 0,
        "eviction": "oldest",
        "max_idle_ms": 0,
        "dicts": "any",
        "durability": "interval",
        "schema": None,
        "journal": {"capacity": 0, "max_bytes": 16 * 1024 * 1024},
    }
    assert "prices\tmax entries 500" in ask("map", "max-entries", "prices", "500")
    assert "max entries   500" in ask("map", "settings", "prices")
    assert ask("map", "max-entries", "prices", "600", "--json")["prices"]["max_entries"] == 600
    assert "max bytes any number" in ask("map", "max-entries", "prices", "500")
    assert "max bytes 9000" in ask("map", "max-bytes", "prices", "9000", at=1)
    assert "max bytes     9000" in ask("map", "settings", "prices")
    assert ask("map", "eviction", "prices", "lru", "--json")["prices"]["eviction"] == "lru"
    assert "prices\tmax entries 500\tmax bytes any number\teviction lru" in ask("map", "max-bytes", "prices", "0")
    assert "prices\tmax entries any number" in ask("map", "max-entries", "prices", "0", at=2)
    assert "prices\tmax idle 1.5 seconds" in ask("map", "max-idle", "prices", "1.5")
    assert ask("map", "max-idle", "prices", "2", "--json", at=1)["prices"]["max_idle_ms"] == 2_000
    assert "max idle      2 seconds" in ask("map", "settings", "prices")
    assert "prices\tmax idle for ever" in ask("map", "max-idle", "prices", "0")
    assert ask("map", "dicts", "prices", "json") == "prices\tdicts json\n"
    assert "dicts         json" in ask("map", "settings", "prices", at=2)
    assert ask("map", "dicts", "prices", "any", "--json", at=1)["prices"]["dicts"] == "any"
    assert "protection off" in ask("map", "protect", "prices", "--off")
    assert "only a * at the end" not in ask("map", "protect", "prices*", "--off")
    assert "only a * at the end matches other names" in ask("map", "protect", "p*s", "--off")
    changed = ask("map", "protect", "*", "--off")
    assert "not changed, because they have settings of their own: audit*, orders, p*s, prices, prices*" in changed
    ask("map", "backups", "prices", "--sync", "1")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("eviction", "m", "random"), "eviction: 'random' is not one of oldest, lru, lfu, soonest-to-expire"),
        (("protect", "m"), "give --minimum, --majority or both, or --off"),
        (("protect", "m", "--off", "--minimum", "2"), "--off cannot be combined"),
        (("protect", "m", "--minimum", "-1"), "--minimum"),
        (("protect", "m", "--minimum", "three"), "--minimum"),
        (("protect", "m" * 201, "--majority"), "201 characters"),
        (("protect", "", "--majority"), "the name of the map is empty"),
        (("merge-policy", "", "discard"), "the name of the map is empty"),
        (("backups", "", "--sync", "2"), "the name of the map is empty"),
        (("settings", ""), "the name of the map is empty"),
        (("max-entries", "m", "many"), "Invalid value for 'entries'"),
        (("max-entries", "", "5"), "the name of the map is empty"),
        (("max-idle", "m", "soon"), "Invalid value for 'seconds'"),
        (("max-idle", "", "5"), "the name of the map is empty"),
        (("dicts", "m", "yaml"), "dicts: 'yaml' is not one of any, rows, json"),
        (("durability", "m", "never"), "durability: 'never' is not one of interval, always"),
        (
            ("durability", "m", "always"),
            "durability: 'always' needs a folder of each member that holds data: set data_dir of",
        ),
        (("dicts", "", "json"), "the name of the map is empty"),
        (("merge-policy", "m", "best"), "merge_policy: 'best' is not one of latest-update"),
    ],
)
def test_what_makes_no_sense_is_one_line(ask: Ask, arguments: tuple[str, ...], told: str) -> None:
    assert told in ask("map", *arguments, status=2)


def test_every_caller_is_told_at_once_when_a_member_is_missing_and_served_when_one_has_come(
    ask: Ask, three: Cluster, phalanx_command: Command
) -> None:
    with three.client() as grid:
        orders, free = grid.map("orders"), grid.map("free")
        orders.put_all({n: n for n in range(50)})
        three.kill(three.members[2])

        def refused() -> phalanx.NotEnoughMembers | None:
            try:
                orders.get(1)
            except phalanx.NotEnoughMembers as error:
                return error
            return None

        error = wait_for(refused, "a protected map refuses with two of three members")
        assert "map 'orders' refuses reads: it needs at least 3 members that hold data, and 2 are here" in str(error)
        wait_for(lambda: all(_refuses(orders, n) for n in range(50)), "both owners refuse")
        operations: dict[str, Callable[[], object]] = {
            "get_all": lambda: orders.get_all([1, 2]),
            "put": lambda: orders.put(1, 2),
            "put_all": lambda: orders.put_all({1: 2, 3: 4}),
            "remove": lambda: orders.remove(1),
            "size": orders.size,
            "clear": orders.clear,
            "scan": lambda: list(orders.items()),
        }
        for operation in operations.values():
            with pytest.raises(phalanx.NotEnoughMembers, match="nothing was changed"):
                operation()
        free.put("any", 1)
        asyncio.run(_ask_without_blocking(three))
        options = {"members": three.addresses, "cluster": three.name, "map": "orders"}
        with spark_connect(parse_options(options, "read")) as spark, pytest.raises(phalanx.NotEnoughMembers):
            list(spark.scan_data("orders", [0]))
        assert "refuses reads" in ask("map", "get", "orders", "1", "--key-type", "int", status=1)
        why = phalanx_command(
            "why", three.members[0].address, "--event-log", three.event_log, "--cluster", "three", "--json"
        )
        assert why.exit_code == 0, why.stderr
        told = [each for each in json.loads(why.stdout)["decisions"] if each["event"] == "ProtectionChanged"]
        assert "it needs at least 3 members that hold data, and 2 are here" in json.dumps(told[-1])
        three.start(1)
        wait_for(lambda: orders.get(1) == 1, "a third member is here again")
        assert orders.get_all(range(50)) == {n: n for n in range(50)}


def _refuses(orders: SyncMap[Any, Any], key: object) -> bool:
    try:
        orders.get(key)
    except phalanx.NotEnoughMembers:
        return True
    return False


async def _ask_without_blocking(three: Cluster) -> None:
    async with await phalanx.connect(three.addresses, cluster=three.name) as grid:
        for operation in (
            grid.map("orders").get(1), grid.map("orders").put_all({1: 2, 3: 4}), grid.map("orders").clear(),
        ):  # fmt: skip
            with pytest.raises(phalanx.NotEnoughMembers):
                await operation
