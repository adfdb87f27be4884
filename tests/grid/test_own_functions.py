"""A program's own functions change values where they live: once, at the owner, and nothing that they do ends a member."""

import re
from collections.abc import Callable
from typing import Any

import pytest

import phalanx
from phalanx import ABSENT, REMOVE, UNCHANGED, Update
from phalanx.codec.values import from_data, to_data
from phalanx.common.errors import ErrorCode
from phalanx.common.updates import named_functions
from phalanx.grid.serving.updates import BUILT_IN
from phalanx.runtime.settings.config import with_modules
from phalanx.wire import messages as m
from support.harness import KEY, MAP, Cluster


def limited(value: Any, by: int, most: int) -> object:
    total = (0 if value is ABSENT else value) + by
    return Update(total, result=total) if total <= most else UNCHANGED


def cluster(**functions: Callable[..., object]) -> Cluster:
    c = Cluster("AB", partition_count=1, backup_count=1, functions=functions)
    c.assign(rows=["AB"])
    return c


def ask(c: Cluster, function: str, *arguments: object) -> Any:
    asked = c.ask("A", m.UpdateValue, MAP, KEY, function, [to_data(each) for each in arguments], None)
    c.settle()
    reply = c.replies[asked]
    if isinstance(reply, m.ErrorReply):
        assert reply.code is ErrorCode.INVALID
        return reply.text
    value = c.reply(asked, m.ValueReply).value
    return None if value is None else from_data(value)


def stored(c: Cluster) -> Any:
    value = c.reply(c.ask("A", m.Get, MAP, KEY), m.ValueReply).value
    return None if value is None else from_data(value)


def test_a_function_gets_the_value_and_its_arguments_and_returns_what_follows() -> None:
    c = cluster(limited=limited)
    assert [ask(c, "limited", 4, 10) for _ in range(4)] == [4, 8, None, None]
    assert stored(c) == 8
    assert c.entries("A") == c.entries("B")


@pytest.mark.parametrize(
    ("made", "then", "result"),
    [
        (Update(None), None, None),
        (Update([1], "told"), [1], "told"),
        (REMOVE, "gone", None),
        (ABSENT, "gone", None),
        (Update(REMOVE, "told"), "gone", "told"),
        (UNCHANGED, "before", None),
        (Update(UNCHANGED, 5), "before", 5),
    ],
)
def test_what_it_returns_is_what_becomes_of_the_key(made: object, then: object, result: object) -> None:
    c = cluster(made=lambda value: made)
    c.put("A", KEY, to_data("before"))
    c.settle()
    assert ask(c, "made") == result
    there = c.replies[c.ask("A", m.Contains, MAP, KEY)]
    assert isinstance(there, m.FlagReply)
    assert there.flag is (then != "gone")
    assert stored(c) == (None if then == "gone" else then)
    assert c.entries("A") == c.entries("B")


def test_removing_what_is_not_there_changes_nothing() -> None:
    c = cluster(remove=lambda value: Update(REMOVE, value is ABSENT))
    assert ask(c, "remove") is True
    assert c.entries("A") == {}


def fail(value: object) -> object:
    raise ValueError("no such thing\n" + "x" * 10_000)


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def fail_oddly(value: object) -> object:
    raise Odd


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (fail, r"own raised ValueError: 'no such thing\\n"),
        (fail_oddly, "own raised Odd"),
        (lambda value: 5, "own returned int: it must return phalanx.Update, REMOVE or UNCHANGED"),
        (lambda value: None, "own returned NoneType"),
        (lambda value: Update(object()), "object cannot be stored"),
        (lambda value: Update(1, result={1}), "set"),
        (lambda: UNCHANGED, "own raised TypeError: .*takes 0 positional arguments"),
        (lambda value: value.append(1), "own raised AttributeError"),
    ],
)
def test_a_function_that_fails_changes_nothing_and_its_caller_is_told(
    function: Callable[..., object], told: str
) -> None:
    c = cluster(own=function)
    c.put("A", KEY, to_data("before"))
    c.settle()
    text = ask(c, "own")
    assert isinstance(text, str)
    assert re.search(told, text), text
    assert len(text) < 1_000
    assert stored(c) == "before"


def test_a_member_that_lacks_the_function_says_so_at_once() -> None:
    c = cluster(limited=limited)
    assert "there is no function 'unlimited' here; there are add_to_set" in ask(c, "unlimited")
    assert ", limited, " in ask(c, "unlimited")


def test_functions_are_named() -> None:
    assert named_functions([limited], BUILT_IN) == {"limited": limited}
    assert named_functions({"other": limited}, BUILT_IN) == {"other": limited}
    assert named_functions({}, BUILT_IN) == {}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([lambda value: value], "has no name: give a dict"),
        ([5], "5 cannot be called"),
        ({"": limited}, "has no name"),
        ({5: limited}, "has no name"),
        ([limited, limited], "two are named 'limited'"),
        ({"increment": limited}, "every member has one that is named 'increment'"),
        ("limited", "'limited' is neither a list of functions nor a dict"),
        (5, "5 is neither a list of functions nor a dict"),
        (["no_such_module"], "module 'no_such_module' cannot be imported: ModuleNotFoundError"),
        (["phalanx.common.ids.nothing"], "cannot be imported"),
        (["phalanx.wire.message"], "module 'phalanx.wire.message' defines no function"),
    ],
)
def test_what_cannot_be_registered_is_refused_by_the_settings(given: Any, reason: str) -> None:
    with pytest.raises(phalanx.UsageError, match=f"^functions: .*{reason}"):
        phalanx.Config(functions=given)


def test_a_module_gives_the_functions_that_it_defines(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_updates.py").write_text(
        "from phalanx import Update, UNCHANGED\nfrom os.path import join\n"
        "def raise_price(value, by):\n    return Update(value + _half(by))\n"
        "def _half(by):\n    return by / 2\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [each.__name__ for each in with_modules(["shop_updates", limited])] == ["raise_price", "limited"]
    assert set(phalanx.Config(functions=["shop_updates"]).functions) == {"raise_price"}
