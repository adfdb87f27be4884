"""Members that hold no data: what an operator sees of them, and what a program in such a member's process gets."""

import asyncio
import json
from collections.abc import Iterator

import pytest

import phalanx
from processes import Cluster, wait_for


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
def ask(phalanx_command, mixed):
    """Runs a command against one of them; with `--json`, what it printed as an object."""

    def run(*arguments, at=0, status=0):
        result = phalanx_command(*arguments, "--at", mixed.members[at].address, "--cluster", mixed.name)
        assert result.exit_code == status, (result.stdout, result.stderr)
        return json.loads(result.stdout) if "--json" in arguments else result.stdout

    return run


@pytest.mark.parametrize("at", [0, 1])
def test_any_member_tells_what_is_special_about_each(ask, at):
    told = [(each["zone"], each["weight"], each["lite"]) for each in ask("members", "--json", at=at)["members"]]
    assert told == [("rack 7", 2.0, False), ("", 1.0, True)]
    shown = ask("members", at=at)
    assert "rack 7" in shown
    assert "weight 2" in shown
    assert "lite" in shown


def test_what_is_asked_of_a_lite_member_is_kept_by_the_others(ask, mixed):
    ask("map", "put", "fruit", "apple", "red", at=1)
    assert "red" in ask("map", "get", "fruit", "apple", at=0)
    seen = ask("partitions", "--json", at=1)
    assert [(each["owned"], each["backups"]) for each in seen["members"]] == [(271, 0), (0, 0)]
    assert seen["under_replicated"] == 0
    assert "it is a lite member: it holds no data" in ask("safe", at=1)
    assert "no member that holds data would stay" in ask("safe", "--graceful", at=0, status=1)


def test_a_program_in_a_lite_member_reads_and_writes(mixed):
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


def test_where_no_member_holds_data_callers_are_told_so():
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


def test_the_last_data_member_may_be_stopped(tmp_path, phalanx_command):
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
