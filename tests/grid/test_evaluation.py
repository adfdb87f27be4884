"""Nothing that a request asks to be evaluated ends a member: what is raised is an answer, counted and told now and then (PX-48)."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.codec.values import from_data, to_data
from phalanx.common.errors import ErrorCode
from phalanx.grid.serving import conditions
from phalanx.grid.serving.evaluation import RECORD_AGAIN_MS
from phalanx.grid.serving.update_results import Updated
from phalanx.reports.event_words import in_words
from phalanx.wire import messages as m
from phalanx.wire.conditions import Condition, Kind, Relation
from phalanx.wire.update_events import EvaluationFailed
from support.harness import KEY, MAP, Cluster

SECRET = "what a client stored"


def cluster(**functions: Callable[..., object]) -> Cluster:
    c = Cluster("AB", partition_count=1, backup_count=1, functions=functions)
    c.assign(rows=["AB"])
    c.put("A", KEY, to_data(SECRET))
    c.settle()
    return c


def ask(c: Cluster, function: str, *arguments: object) -> Any:
    asked = c.ask("A", m.UpdateValue, MAP, KEY, function, [to_data(each) for each in arguments], None)
    c.settle()
    return c.replies[asked]


def refusal(reply: Any) -> str:
    assert isinstance(reply, m.ErrorReply), reply
    assert reply.code is ErrorCode.INVALID
    return reply.text


def stored(c: Cluster) -> Any:
    return from_data(c.reply(c.ask("A", m.Get, MAP, KEY), m.ValueReply).value or b"")


def raising(error: BaseException) -> Callable[..., Updated]:
    def function(value: bytes | None, *arguments: bytes) -> Updated:
        raise error

    return function


@contextmanager
def nothing_ends_the_owner() -> Iterator[None]:
    """Let what is raised within be a failed assertion."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise AssertionError(f"{error!r} would have ended the owner") from error


@pytest.mark.rows("PX-48")
@pytest.mark.parametrize(
    "error",
    [ArithmeticError, RecursionError, MemoryError, OverflowError, UnicodeError, ValueError, KeyError, SystemExit],
)
def test_whatever_a_function_raises_is_an_answer_with_its_class_and_without_its_text(
    error: type[BaseException],
) -> None:
    c = cluster()
    grid = c.nodes["A"].grid
    grid.evaluator.functions = {**grid.evaluator.functions, "planted": raising(error(SECRET))}
    with nothing_ends_the_owner():
        text = refusal(ask(c, "planted"))
    assert text == f"planted failed with {error.__name__} on what it was given: nothing was changed"
    where: Any = m.UpdateWhere, MAP, 0, 1, b"", "planted", []
    reply = c.reply(c.ask("A", *where), m.UpdatedReply)
    assert (reply.changed, reply.failed, reply.reason) == (0, 1, text)
    assert stored(c) == SECRET
    assert c.entries("A") == c.entries("B")
    assert grid.evaluator.failed == {"UpdateValue": 1, "UpdateWhere": 1}


def test_who_interrupts_the_program_does() -> None:
    c = cluster()
    grid = c.nodes["A"].grid
    grid.evaluator.functions = {**grid.evaluator.functions, "planted": raising(KeyboardInterrupt())}
    with pytest.raises(KeyboardInterrupt):
        ask(c, "planted")


@dataclass
class Odd:
    """What a program's function returns, and what cannot be read."""

    x: int

    def __getattr__(self, name: str) -> object:
        raise ZeroDivisionError


def returns_what_cannot_be_read(value: object) -> object:
    odd = Odd(1)
    del odd.x
    return phalanx.Update(odd)


def leaves(value: object) -> object:
    raise SystemExit("enough")


def test_nor_does_what_a_programs_function_returns_or_leaves_with() -> None:
    c = cluster(odd=returns_what_cannot_be_read, leaves=leaves)
    assert "odd failed with ZeroDivisionError" in refusal(ask(c, "odd"))
    assert refusal(ask(c, "leaves")) == "leaves raised SystemExit: 'enough'"
    assert stored(c) == SECRET


@pytest.mark.rows("PX-48")
def test_what_is_raised_while_a_change_is_applied_ends_the_member(monkeypatch: pytest.MonkeyPatch) -> None:
    c = cluster()

    def broken(*arguments: object, **named: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(c.nodes["A"].grid.leader, "commit", broken)
    with pytest.raises(ZeroDivisionError, match="ours"):
        ask(c, "get_and_put", 1)


def test_failures_are_counted_and_told_once_a_minute_without_any_value() -> None:
    c = cluster()
    grid = c.nodes["A"].grid
    grid.evaluator.functions = {**grid.evaluator.functions, "planted": raising(ValueError(SECRET))}
    refusal(ask(c, "planted"))
    refusal(ask(c, "nothing of that name"))
    for _ in range(3):
        refusal(ask(c, "planted"))
    assert grid.evaluator.failed == {"UpdateValue": 4}, "what was foreseen is no failure"
    told = c.events_of("A", EvaluationFailed)
    assert told == [EvaluationFailed("UpdateValue", "ValueError", 0)]
    c.advance(RECORD_AGAIN_MS)
    refusal(ask(c, "planted"))
    told = c.events_of("A", EvaluationFailed)
    assert told[1:] == [EvaluationFailed("UpdateValue", "ValueError", 3)]
    words = in_words(told[1])
    assert words == (
        "refused a request UpdateValue, whose function or condition failed with ValueError; nothing was changed; "
        "3 more failed since the last such line"
    )
    assert SECRET not in str(told)


@pytest.mark.rows("PX-48")
def test_a_condition_that_fails_on_an_entry_does_not_fail_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _literal(7)
    of_key = Condition(0, (), Kind.INTEGER, Relation.EQUAL, (to_data(7),))

    def read(value: object) -> object:
        if value == 13:
            raise MemoryError
        return value

    monkeypatch.setitem(conditions._KINDS, Kind.INTEGER, read)
    for surely in (False, True):
        of_value = conditions.wanted_by([asked], 1, surely=surely)
        wanted = conditions.wanted_by([of_key], 1, surely=surely)
        with nothing_ends_the_owner():
            found = [of_value(b"", bytes(8) + to_data({"x": x})) for x in (7, 13, 8)]
            found_by_key = [wanted(to_data(x), b"") for x in (7, 13, 8)]
        assert found == found_by_key == [True, not surely, False]
    with pytest.raises(conditions.BadCondition):
        conditions.wanted_by([_literal(13)], 1)


def _literal(number: int) -> Condition:
    return Condition(-1, ("x",), Kind.INTEGER, Relation.EQUAL, (to_data(number),))


def test_conditions_that_cannot_be_compiled_are_refused_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    c = cluster()

    def broken(*arguments: object, **named: object) -> None:
        raise MemoryError

    monkeypatch.setattr(conditions, "_compared", broken)
    scan: Any = m.ScanPacked, MAP, 0, 1, b"", 1_000, 1, (_literal(1),)
    assert "a condition failed with MemoryError" in refusal(c.replies[c.ask("A", *scan)])
    where: Any = m.UpdateWhere, MAP, 0, 1, b"", "touch", [], (_literal(1),)
    assert "a condition failed with MemoryError" in refusal(c.replies[c.ask("A", *where)])
    assert c.nodes["A"].grid.evaluator.failed == {"ScanPacked": 1, "UpdateWhere": 1}


def test_values_are_read_only_where_that_is_guarded() -> None:
    """Elsewhere what an owner does with values must not depend on what is in them."""
    grid = Path(phalanx.__file__).parent / "grid"
    reads = re.compile(
        r"\b(from_data|from_any_data|from_key_data|values_from_data|from_json\w*|rows_data|json_data|scalar_of|value_of)\b"
    )
    found = {str(each.relative_to(grid)) for each in grid.rglob("*.py") if reads.search(each.read_text())}
    assert found == {f"serving/{each}.py" for each in ("conditions", "updates")}


# --- what was seen ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["add_to_set", "discard"])
@pytest.mark.parametrize("item", [Decimal("sNaN"), Decimal("NaN"), [Decimal("sNaN")], {"a": Decimal("sNaN")}])
def test_what_is_no_number_is_compared_as_serialised(function: str, item: object) -> None:
    c = cluster()
    for value in ([1, 2, 3], [1, Decimal("sNaN"), Decimal(2)], [item], [[1], {"a": 1}]):
        ask(c, "get_and_put", value)
        reply = ask(c, function, item)
        assert isinstance(reply, m.ValueReply), reply
        before = [to_data(each) for each in value]
        assert from_data(reply.value or b"") is ((to_data(item) in before) is (function == "discard"))
    assert not c.nodes["A"].grid.evaluator.failed
