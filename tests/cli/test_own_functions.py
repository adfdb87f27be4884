"""Members are given a program's functions by the name of its module, and say which they lack."""

import asyncio
from pathlib import Path

import pytest

import phalanx
from support.commands import Command
from support.processes import Cluster, wait_for

MODULE = """
import phalanx

def take(value, many):
    left = (0 if value is phalanx.ABSENT else value) - many
    return phalanx.Update(left, result=True) if left >= 0 else phalanx.Update(phalanx.UNCHANGED, result=False)

def doze(value):
    import time
    time.sleep(0.3)
    return phalanx.UNCHANGED
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a program with a module `stock`."""
    (tmp_path / "stock.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_taken_from_many_places_at_once_is_never_more_than_there_is(shop: Path, cluster: Cluster) -> None:
    members = cluster.start(2, options=("--functions", "stock"))
    with cluster.client() as grid:
        grid.map("stock")["apples"] = 100

    async def buy() -> int:
        async with phalanx.connect(cluster.addresses, cluster=cluster.name) as grid:
            bought = await asyncio.gather(*(grid.map("stock").update("apples", "take", 3) for _ in range(50)))
        return sum(bought)

    assert asyncio.run(buy()) == 33
    with cluster.client() as grid:
        assert grid.map("stock")["apples"] == 1
        with pytest.raises(phalanx.UsageError, match=r"^take: take raised TypeError: .*missing 1 required"):
            grid.map("stock").update("apples", "take")
        grid.map("stock").update("apples", "doze")
    wait_for(lambda: any("function 'doze'" in each.log.read_text() for each in members), "a slow one is told by name")


def test_a_member_without_them_is_told_by_name(shop: Path, cluster: Cluster) -> None:
    cluster.start(1)
    with cluster.client() as grid, pytest.raises(phalanx.UsageError, match="there is no function 'take' here"):
        grid.map("stock").update("apples", "take", 1)


@pytest.mark.parametrize(
    ("module", "reason"),
    [("nothing_here", "module 'nothing_here' cannot be imported"), ("empty", "module 'empty' defines no function")],
)
def test_a_module_that_gives_none_ends_the_command(
    shop: Path, module: str, reason: str, phalanx_command: Command
) -> None:
    (shop / "empty.py").write_text("")
    result = phalanx_command("member", "--port", 0, "--functions", module)
    assert result.exit_code == 2
    assert reason in result.stderr
