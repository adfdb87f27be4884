"""How facts come to the machines that are interested in them: in which order, how often, and until when."""

import pytest

from phalanx.common.errors import InvariantViolation
from phalanx.common.ids import Millis
from phalanx.common.table import unassigned_table
from phalanx.machine.facts import Fact, IncarnationOver, NewTable, NewView, OrphansMerged
from phalanx.machine.interests import MOST_ROUNDS, Facts, Interest, interest, interest_in_both
from phalanx.machine.outbox import Outbox
from support.harness import lone_id, lone_view

TABLE = NewTable(unassigned_table(4))


def view(version: int) -> NewView:
    return NewView(lone_view("A", version), frozenset({lone_id("A")}))


class Machines:
    """Notes which fact each of several machines is given, in the order in which they are."""

    def __init__(self) -> None:
        self.out = Outbox()
        self.given: list[tuple[str, *tuple[Fact, ...]]] = []
        self.tells: dict[str, list[Fact]] = {}
        """Name of a machine to what it tells in its turns, one after another."""

    def turn(self, name: str, *facts: Fact) -> None:
        self.given.append((name, *facts))
        if self.tells.get(name):
            self.out.tell(self.tells[name].pop(0))

    def of(self, name: str, kind: type[Fact]) -> Interest:
        def take(fact: Fact, now: Millis) -> None:
            self.turn(name, fact)

        return interest(kind, take)

    def of_both(self, name: str, one: type[Fact], other: type[Fact]) -> Interest:
        def take(first: Fact, second: Fact, now: Millis) -> None:
            self.turn(name, first, second)

        return interest_in_both(one, other, take)


def test_machines_have_their_turns_in_the_order_of_the_table_and_get_each_fact_once() -> None:
    m = Machines()
    facts = Facts(m.out.facts, [m.of("a", NewView), m.of("b", NewTable), m.of("c", NewView)])
    first = view(1)
    m.out.tell(TABLE)
    m.out.tell(first)
    facts.deliver(0)
    facts.deliver(0)
    assert m.given == [("a", first), ("b", TABLE), ("c", first)]


def test_only_the_latest_fact_of_a_kind_counts() -> None:
    m = Machines()
    facts = Facts(m.out.facts, [m.of("a", NewView)])
    first, second = view(1), view(2)
    m.out.tell(first)
    m.out.tell(second)
    facts.deliver(0)
    assert m.given == [("a", second)]


def test_what_a_machine_tells_in_its_turn_reaches_those_behind_it_in_this_round_and_those_before_it_in_the_next() -> (
    None
):
    m = Machines()
    facts = Facts(m.out.facts, [m.of("a", NewTable), m.of("b", NewView), m.of("c", NewTable)])
    first = view(1)
    m.tells["b"] = [TABLE]
    m.out.tell(first)
    facts.deliver(0)
    assert m.given == [("b", first), ("c", TABLE), ("a", TABLE)]


def test_a_machine_is_not_given_what_it_has_told_itself_meanwhile() -> None:
    m = Machines()
    facts = Facts(m.out.facts, [m.of_both("a", NewView, NewTable), m.of("b", NewTable)])
    first, second = TABLE, NewTable(unassigned_table(8))
    m.tells["a"] = [second]
    m.out.tell(view(1))
    m.out.tell(first)
    facts.deliver(0)
    assert [(name, told[-1]) for name, *told in m.given] == [("a", first), ("b", second)]


def test_who_works_from_two_facts_waits_for_both_and_looks_again_when_either_is_new() -> None:
    m = Machines()
    facts = Facts(m.out.facts, [m.of_both("a", NewView, NewTable)])
    first, second = view(1), view(2)
    m.out.tell(first)
    facts.deliver(0)
    assert m.given == []
    m.out.tell(TABLE)
    facts.deliver(0)
    m.out.tell(second)
    facts.deliver(0)
    assert m.given == [("a", first, TABLE), ("a", second, TABLE)]


def test_what_was_told_before_anybody_listened_is_no_news() -> None:
    m = Machines()
    first = view(1)
    m.out.tell(TABLE)
    facts = Facts(m.out.facts, [m.of("a", NewTable), m.of_both("b", NewView, NewTable)])
    m.out.tell(first)
    facts.deliver(0)
    assert m.given == [("b", first, TABLE)]


def test_of_an_incarnation_that_is_over_nobody_hears_anything_else() -> None:
    m = Machines()
    facts = Facts(m.out.facts, [m.of("a", OrphansMerged), m.of("b", NewView), m.of("c", IncarnationOver)])
    m.tells["a"] = [IncarnationOver()]
    m.out.tell(view(1))
    m.out.tell(OrphansMerged())
    facts.deliver(0)
    m.out.tell(view(2))
    facts.deliver(0)
    assert [name for name, *_ in m.given] == ["a", "c"]


def test_machines_that_never_come_to_an_end_stop_the_member() -> None:
    m = Machines()
    facts = Facts(m.out.facts, [m.of("a", NewView), m.of("b", NewTable)])
    m.tells["a"] = [NewTable(unassigned_table(4)) for _ in range(MOST_ROUNDS)]
    m.tells["b"] = [view(version) for version in range(MOST_ROUNDS)]
    m.out.tell(view(1))
    with pytest.raises(InvariantViolation, match="come to an end"):
        facts.deliver(0)
