"""What the console shows of maps, added up of what members hold and what their clients called."""

import asyncio
from types import SimpleNamespace
from typing import Any

from phalanx.common.errors import UnavailableError
from phalanx.common.ids import MemberId
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_schema import Column, DecimalType, TextType, make_schema
from phalanx.common.map_settings import MapChange
from phalanx.http.console.map_figures import MOST_COLUMNS, MapFigures
from phalanx.http.console.peers import PeerAnswers
from phalanx.http.durations import CALL_ENDS_S
from phalanx.wire.figures import MapCalls, MapHeld
from phalanx.wire.messages import ActivityReply, ReplicasReply

A, B, C = (MemberId(f"127.0.0.1:{port}/1b4e28ba-2fa1-11d2-883f-0016d3cca427") for port in (5701, 5702, 5703))
NO_SETTINGS = MapPlan()
CLASSES = len(CALL_ENDS_S) + 1


def calls(fast: int, slow: int = 0) -> tuple[int, ...]:
    return (fast, *[0] * (CLASSES - 2), slow)


def says(
    held: list[MapHeld], called: list[MapCalls], *, counts_calls: bool = True, over_ms: int = 10_000
) -> PeerAnswers:
    found = PeerAnswers()
    found.holdings = ReplicasReply(1, 1, 1, 1, 1, 0, 1, 0, 0, tuple(held))
    found.activity = ActivityReply(1, 1, 0, (), counts_calls, over_ms, tuple(called))
    return found


def make(told: dict[MemberId, PeerAnswers], plan: MapPlan = NO_SETTINGS, sizes: dict[str, int] | None = None) -> Any:
    """`sizes`: None: an owner does not answer."""

    async def maps() -> Any:
        if sizes is None:
            raise UnavailableError("nobody")
        return list(sizes), plan

    async def ask_sizes(names: list[str]) -> dict[str, int]:
        return {name: (sizes or {})[name] for name in names}

    figures = MapFigures(SimpleNamespace(maps=maps, sizes=ask_sizes))  # type: ignore[arg-type]
    return asyncio.run(figures.make(plan, told))


def test_figures_of_all_members_are_added_up_and_percentiles_are_of_all_calls() -> None:
    told = {
        A: says([MapHeld("flights", 5, 50, 7, 70, 1, 0)], [MapCalls("flights", calls(98), calls(10), 1)]),
        B: says(
            [MapHeld("flights", 7, 70, 5, 50, 0, 2)], [MapCalls("flights", calls(0, 2), calls(10), 2)], over_ms=5_000
        ),
        C: says([], [], counts_calls=False),
    }
    found = make(told, sizes={"flights": 12, "new": 1})
    flights, new = found["maps"]
    assert (flights["entries"], flights["bytes"], flights["backup_entries"], flights["backup_bytes"]) == (
        12,
        120,
        12,
        120,
    )
    assert (flights["evicted"], flights["expired"], flights["errors"]) == (1, 2, 3)
    assert (flights["reads"]["per_s"], flights["writes"]["per_s"]) == (10.2, 3.0)
    assert flights["reads"]["p50_ms"] < 0.1
    assert flights["reads"]["p99_ms"] == CALL_ENDS_S[-1] * 1000, "two of a hundred calls at one member were slow"
    assert (new["map"], new["entries"], new["reads"]) == ("new", 1, {"per_s": 0.0, "p50_ms": None, "p99_ms": None})
    assert (found["over_s"], found["silent"], found["uncounted"]) == (10, [], ["127.0.0.1:5703"])


def test_a_member_that_does_not_answer_is_named_and_what_others_hold_is_shown() -> None:
    told = {A: says([MapHeld("flights", 5, 50, 7, 70, 0, 0)], []), B: PeerAnswers()}
    found = make(told)
    assert [(each["map"], each["entries"]) for each in found["maps"]] == [("flights", 5)]
    assert found["silent"] == ["127.0.0.1:5702"]


def test_calls_in_classes_of_another_release_are_left_out() -> None:
    found = make({A: says([], [MapCalls("flights", (1, 2), calls(10), 0)])})
    assert (found["maps"][0]["reads"]["per_s"], found["maps"][0]["writes"]["per_s"]) == (0.0, 1.0)


def test_a_schema_is_shown_with_its_first_columns() -> None:
    few = (Column("id", TextType()), Column("price", DecimalType(12, 2)))
    many = (*few, *(Column(f"column {number}", TextType()) for number in range(MOST_COLUMNS)))
    plan = MapPlan()
    for name, columns in (("few", few), ("many", many)):
        plan = plan.with_change(name, MapChange(schema=make_schema(columns, ("id",)).to_json()))
    first, second, other = make({}, plan, {"few": 1, "many": 1, "other": 1})["maps"]
    assert first["settings"]["schema"] == {
        "key": ["id"],
        "columns": [{"name": "id", "type": "string"}, {"name": "price", "type": "decimal(12,2)"}],
    }
    assert (len(second["settings"]["schema"]["columns"]), second["settings"]["schema"]["more"]) == (MOST_COLUMNS, 2)
    assert other["settings"]["schema"] is None
