"""Two and three sides of every size up to seven members come together again: the right one stays, nobody is left behind."""

from itertools import product

import pytest

from phalanx_proof.sim.scenario.commands import Player
from support.drawings import Drawing, Variant, play_drawing

pytestmark = pytest.mark.thorough

NAMES = "ABCDEFG"
TWO = [(a, b) for a, b in product(range(1, 7), repeat=2) if a + b <= 7]
THREE = [(a, b, c) for a, b, c in product(range(1, 6), repeat=3) if a + b + c <= 7]
KINDS = ["usual", "lite members", "data", "data on one side"]


def is_falling(sizes: tuple[int, ...]) -> bool:
    return list(sizes) == sorted(sizes, reverse=True)


def take_turns(sizes: tuple[int, ...]) -> list[str]:
    """The sides take turns in age, so that old and young members are on all of them."""
    sides = ["" for _ in sizes]
    left = list(sizes)
    for name in NAMES[: sum(sizes)]:
        number = max(range(len(left)), key=lambda side: (left[side], -side))
        sides[number] += name
        left[number] -= 1
    return sides


def expected(sides: list[str], lite: frozenset[str], with_data: list[str]) -> list[str]:
    """The sides that may stay: those that the order puts first before versions and names break ties."""
    order = {side: (side in with_data and bool(set(side) - lite), len(set(side) - lite), len(side)) for side in sides}
    return [side for side in sides if order[side] == max(order.values())]


@pytest.mark.rows("EL-47", "EL-57", "EL-58", "EL-59", "EL-60", "EL-61", "EL-62", "EL-63")
@pytest.mark.parametrize(
    ("sizes", "kind"),
    [(sizes, kind) for kind in KINDS for sizes in TWO + THREE if kind == "usual" or sizes in TWO or is_falling(sizes)],
    ids=lambda of: of if isinstance(of, str) else "|".join(map(str, of)),
)
def test_sides_of_all_sizes_become_one(sizes: tuple[int, ...], kind: str) -> None:
    names = NAMES[: sum(sizes)]
    lite = frozenset(names[1::2]) if kind == "lite members" else frozenset[str]()
    sides = take_turns(sizes)
    with_data = {"data": sides, "data on one side": [min(sides, key=len)]}.get(kind, [])
    stored = "data A => advance 300ms => " if kind == "data" else ""
    cut, apart = " | ".join(map(" ".join, sides)), " | ".join("{" + ",".join(side) + "}" for side in sides)
    text = f"{{{','.join(names)}}} => {stored}cut {cut} => {apart}"

    def come_together(player: Player) -> None:
        if kind == "data on one side":
            player.run(f"data {with_data[0][-1]}")
            player.run("advance 500ms")
        before = {name: player.stage.host(name).incarnations for name in names}
        player.run("heal")
        player.run("until whole within 60s")
        assert not player.failures, player.failures
        stayed = {name for name in names if player.stage.host(name).incarnations == before[name]}
        views = {repr(host.node.membership.view) for host in player.stage.running() if host.node}
        assert len(views) == 1
        assert stayed in [set(side) for side in expected(sides, lite, with_data)], sides
        assert len(player.stage.running()) == len(names)
        player.run("advance 2s")
        tables = {host.node.installed_table.table for host in player.stage.running() if host.node}
        assert len(tables) == 1
        assert next(iter(tables)).is_assigned == bool(with_data)

    drawing = Drawing("", 0, "", text, (), tuple(names), lite, ())
    assert play_drawing(drawing, Variant(0, len(names) % 2 == 0), watch=come_together) == []
