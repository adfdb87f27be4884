"""Every message finds a handler that takes it."""

import inspect
from functools import partial
from typing import Any, TypeVar, get_args

import pytest

from phalanx.common.config import NodeConfig
from phalanx.common.errors import InvariantViolation
from phalanx.machine.routes import Handler, Routes, handlers_of, route, route_each, route_untimed
from phalanx.node.node import Node
from phalanx.wire import messages as m
from support.harness import lone_id

ALL = get_args(m.Message)


def node_and_tables() -> tuple[Node, list[Routes]]:
    """Return a node, and the tables of its machines, of which it keeps the handlers alone."""
    tables: list[Routes] = []

    def record(*routes: Routes) -> dict[type, Handler]:
        tables.extend(routes)
        return handlers_of(*routes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("phalanx.node.node.handlers_of", record)
        return Node(lone_id("A"), NodeConfig()), tables


NODE, TABLES = node_and_tables()


def taken_by(handler: Any) -> tuple[Any, ...]:
    """The kinds of messages that a handler is declared to take; none: it stands for another one, which was checked."""
    bound = len(handler.args) if isinstance(handler, partial) else 0
    function = handler.func if isinstance(handler, partial) else handler
    message = list(inspect.signature(function).parameters.values())[bound + 1]
    scope = {**function.__globals__, **inspect.getclosurevars(function).nonlocals, "M": Any}
    declared = eval(message.annotation, scope) if isinstance(message.annotation, str) else message.annotation
    return () if declared is Any or isinstance(declared, TypeVar) else get_args(declared) or (declared,)


def test_handlers_take_what_they_are_the_routes_of() -> None:
    """`route_each` is not checked by mypy: a union's members are known when the program runs."""
    checked = 0
    for kind, handler in [each for table in TABLES for each in table]:
        if kinds := taken_by(handler):
            checked += 1
            assert kind in kinds, (kind, handler)
    assert checked > len(ALL) // 2


def test_the_tables_of_the_machines_name_every_message_and_one_of_them_twice() -> None:
    named = [kind for table in TABLES for kind, _ in table]
    assert set(named) == set(ALL)
    assert {kind for kind in named if named.count(kind) > 1} == {m.MasterConfirmation}


def test_a_message_that_concerns_two_machines_is_given_to_both_in_order() -> None:
    given: list[tuple[str, int]] = []
    rest = tuple(route_each(m.Message, lambda sender, message, now: given.append(("other", now))))
    first = [r for r in rest if r.kind is not m.LeaveRequest]
    one = route(m.LeaveRequest, lambda sender, message, now: given.append(("one", now)))
    two = route_untimed(m.LeaveRequest, lambda sender, message: given.append(("two", 0)))
    handlers_of(first, (one,), (two,))[m.LeaveRequest](lone_id("B"), m.LeaveRequest(), 7)
    assert given == [("one", 7), ("two", 0)]


def test_a_member_does_not_start_with_a_message_that_nobody_takes() -> None:
    rest = [each for each in route_each(m.Message, lambda sender, message, now: None) if each.kind is not m.Get]
    with pytest.raises(InvariantViolation, match="has a handler"):
        handlers_of(rest)


def test_a_node_has_as_many_attributes_as_instances_share_the_names_of() -> None:
    """CPython keeps 30 names for all instances of a class; where one has more, each look for an attribute takes longer."""
    assert len(vars(NODE)) < 30
