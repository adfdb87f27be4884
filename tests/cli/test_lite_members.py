"""Members that hold no data: what an operator sees of them, and what a program in such a member's process gets."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.common.errors import UnavailableError
from phalanx.common.ids import Address
from support.commands import Ask, Command
from support.processes import Cluster, wait_for


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The first holds data; the second does not."""
    cluster = Cluster(tmp_path_factory.mktemp("mixed"), "mixed")
    try:
        cluster.start(1, options=("--zone", "rack 7", "--weight", "2"))
        cluster.start(1, options=("--lite",))
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def ask(phalanx_command: Command, mixed: Cluster) -> Ask:
    """Runs a command against one of them; with `--json`, what it printed as an object."""

    def run(*arguments: object, at: int = 0, status: int = 0) -> Any:
        result = phalanx_command(*arguments, "--at", mixed.members[at].address, "--cluster", mixed.name)
        assert result.exit_code == status, (result.stdout, result.stderr)
        return json.loads(result.stdout) if "--json" in arguments else result.stdout

    return run


@pytest.mark.parametrize("at", [0, 1])
def test_any_member_tells_what_is_special_about_each(ask: Ask, at: int) -> None:
    told = [(each["zone"], each["weight"], each["lite"]) for each in ask("members", "--json", at=at)["members"]]
    assert told == [("rack 7", 2.0, False), ("", 1.0, True)]
    shown = ask("members", at=at)
    assert "rack 7" in shown
    assert "weight 2" in shown
    assert "lite" in shown


def test_what_is_asked_of_a_lite_member_is_kept_by_the_others(ask: Ask, mixed: Cluster) -> None:
    ask("map", "put", "fruit", "apple", "red", at=1)
    assert "red" in ask("map", "get", "fruit", "apple", at=0)
    seen = ask("partitions", "--json", at=1)
    assert [(each["owned"], each["backups"]) for each in seen["members"]] == [(271, 0), (0, 0)]
    assert seen["under_replicated"] == 0
    assert "it is a lite member: it holds no data" in ask("safe", at=1)
    assert "no member that holds data would stay" in ask("safe", "--graceful", at=0, status=1)


def test_a_program_in_a_lite_member_reads_and_writes(mixed: Cluster) -> None:
    async def use() -> None:
        config = phalanx.Config(
            port=0, cluster=mixed.name, seeds=tuple(member.address for member in mixed.members), lite=True
        )
        member = await phalanx.start_member(config)
        try:
            fruit = member.map("fruit")
            await fruit.put("pear", "green")
            await fruit.put_all({f"k{n}": n for n in range(20)})
            assert await fruit.get("pear") == "green"
            assert await fruit.get_all(["k3", "k7"]) == {"k3": 3, "k7": 7}
            assert await fruit.size() >= 21
        finally:
            await member.stop()

    asyncio.run(use())


def test_where_no_member_holds_data_callers_are_told_so() -> None:
    async def use() -> None:
        member = await phalanx.start_member(phalanx.Config(port=0, lite=True, call_timeout_ms=300))
        try:
            for call in (member.map("fruit").put("pear", "green"), member.map("fruit").size()):
                with pytest.raises(phalanx.UnavailableError, match="no member of the cluster holds data"):
                    await call
            async with phalanx.connect(member.address, call_timeout_s=0.3) as grid:
                for call in (grid.map("fruit").get("pear"), grid.map("fruit").size()):
                    with pytest.raises(phalanx.UnavailableError, match="no member of the cluster holds data"):
                        await call
        finally:
            await member.stop()

    asyncio.run(use())


def test_the_last_data_member_may_be_stopped(tmp_path: Path, phalanx_command: Command) -> None:
    cluster = Cluster(tmp_path, "last")
    try:
        cluster.start(1, options=("--lite",))
        (data,) = cluster.start(1)
        assert phalanx_command("map", "put", "m", "a", "1", "--at", data.address, "--cluster", "last").exit_code == 0
        assert cluster.terminate(data) == 0

        def shown() -> str:
            return phalanx_command("partitions", "--at", cluster.members[0].address, "--cluster", "last").stdout

        wait_for(lambda: "No member holds data" in shown(), "it says so")
        cluster.start(1)
        wait_for(lambda: "Replicas of each: 1 of 2 configured" in shown(), "another one owns everything")
    finally:
        cluster.stop()


def test_a_live_member_gives_up_its_data_and_takes_its_share_again(ask: Ask, mixed: Cluster) -> None:
    """The lite one takes its share, the other one hands over what it has; then the same the other way round."""
    first, second = (member.address for member in mixed.members[:2])
    ask("map", "put", "moving", "apple", "red")

    def held() -> list[int]:
        return [each["owned"] + each["backups"] for each in ask("partitions", "--json")["members"]]

    def lite() -> list[bool]:
        return [each["lite"] for each in ask("members", "--json")["members"]]

    ask("members", "--promote", second)
    assert lite() == [False, False]
    wait_for(lambda: held() == [271, 271], "each holds all")
    assert "lite" in ask("members", "--demote", first)
    assert lite() == [True, False]
    wait_for(lambda: held() == [0, 271], "the second holds all")
    assert "red" in ask("map", "get", "moving", "apple", at=1)
    ask("members", "--promote", first, at=1)
    ask("members", "--demote", second)
    wait_for(lambda: (held(), lite()) == ([271, 0], [False, True]), "the first holds all")
    assert "red" in ask("map", "get", "moving", "apple")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--demote", "127.0.0.1:1"), "is not a member of this cluster: give one of"),
        (("--demote", "127.0.0.1:1", "--promote", "127.0.0.1:2"), "give one of --promote"),
    ],
)
def test_what_cannot_be_promoted_or_demoted(
    phalanx_command: Command, mixed: Cluster, options: tuple[str, ...], told: str
) -> None:
    at = ("--at", mixed.members[0].address, "--cluster", mixed.name)
    result = phalanx_command("members", *at, *options)
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_program_promotes_and_demotes_its_own_member() -> None:
    async def use() -> None:
        first = await phalanx.start_member(phalanx.Config(port=0, cluster="own", partition_count=7))
        second = await phalanx.start_member(phalanx.Config(port=0, cluster="own", partition_count=7,
                                                           seeds=(Address(first.address),), lite=True))  # fmt: skip
        try:
            fruit = first.map("fruit")
            await fruit.put("apple", "red")
            await second.promote()
            assert second.view is not None
            assert second.view.data_members == (first.id, second.id)
            await first.demote()
            assert second.replicas_held == 7
            assert first.replicas_held == 0
            assert await fruit.get("apple") == "red"
            with pytest.raises(UnavailableError, match="no other member holds data"):
                await second.demote(timeout_s=0.2)
            await second.promote()
        finally:
            await first.stop()
            await second.stop()

    asyncio.run(use())


@pytest.mark.parametrize("other", [("--promote", "127.0.0.1:2"), ("--accept-as-stable",)])
def test_one_change_of_a_member_list_is_asked_for_at_a_time(phalanx_command: Command, other: tuple[str, ...]) -> None:
    result = phalanx_command("members", "--at", "127.0.0.1:1", "--demote", "127.0.0.1:2", *other)
    assert (result.exit_code, result.stdout) == (2, "")
    told = "give one of --promote, --demote, --leave, --forget, --accept-as-stable, --raise-cluster-version and --hold-cluster-version"
    assert told in result.stderr
