"""Members that name all others as seeds, and not themselves: one of them forms the cluster, and only one (PX-53)."""

from itertools import permutations

import pytest

from phalanx.membership.join.mutual_seeds import MutualSeeds
from support.harness import Cluster, address


def mutual(names: str) -> dict[str, str]:
    """Member to its seeds."""
    return {name: names.replace(name, "") for name in names}


@pytest.mark.rows("PX-53")
@pytest.mark.parametrize("order", [*permutations("ABC"), tuple("BADC")])
def test_they_form_one_cluster_in_whatever_order_they_start(order: tuple[str, ...]) -> None:
    c = Cluster()
    seeds = mutual("".join(sorted(order)))
    for name in order:
        c.start(name, seeds=seeds[name])
        c.advance(700)
    c.advance(3_000)
    views = c.views_of("".join(sorted(order)))
    assert len(set(views)) == 1
    assert views[0].startswith("A"), "the smallest has formed it"
    assert sorted(views[0]) == sorted(order)


def test_ten_form_one_cluster() -> None:
    c, names = Cluster(), "ABCDEFGHIJ"
    for name, seeds in mutual(names).items():
        c.start(name, seeds=seeds)
    c.advance(5_000)
    assert {"".join(sorted(view)) for view in c.views_of(names)} == {names}


@pytest.mark.rows("PX-53")
def test_nobody_forms_one_while_one_of_them_is_not_there() -> None:
    c, seeds = Cluster(), mutual("ABC")
    for name in "AB":
        c.start(name, seeds=seeds[name])
    c.advance(20_000)
    assert c.views_of("AB") == ["", ""]
    c.start("C", seeds=seeds["C"])
    c.advance(3_000)
    assert {"".join(sorted(view)) for view in c.views_of("ABC")} == {"ABC"}


def test_one_that_is_started_again_joins_the_others_and_forms_nothing_while_it_reaches_only_a_part() -> None:
    """1. A, B and C are a cluster. 2. A and C are started again. 3. A reaches C and not B, which is the cluster by now."""
    c, seeds = Cluster(), mutual("ABC")
    for name in "ABC":
        c.start(name, seeds=seeds[name])
    c.advance(5_000)
    c.crash("AC")
    c.cuts |= {frozenset("AB"), frozenset("BC")}
    c.advance(60_000)
    for name in "AC":
        c.start(name, seeds=seeds[name])
    c.advance(20_000)
    assert c.views_of("AC") == ["", ""]
    c.heal()
    c.advance(5_000)
    assert {"".join(sorted(view)) for view in c.views_of("ABC")} == {"ABC"}


def test_one_that_names_itself_first_has_precedence() -> None:
    c = Cluster()
    for name, seeds in {"A": "BC", "B": "BAC", "C": "AB"}.items():
        c.start(name, seeds=seeds)
    c.advance(5_000)
    assert {*c.nodes} == {*"ABC"}, "none ends as part of another cluster"
    views = set(c.views_of("ABC"))
    assert len(views) == 1
    assert views.pop().startswith("B")


@pytest.mark.rows("PX-53")
def test_those_that_name_other_members_are_told_so() -> None:
    c = Cluster()
    for name, seeds in {"A": "BC", "B": "AC", "C": "ABD"}.items():
        c.start(name, seeds=seeds)
    c.advance(30_000)
    assert c.nodes == {}
    reason = c.finished["A"].reason
    assert "no member names itself as the first seed and C:5701 names others" in reason


def test_one_that_is_not_there_is_named() -> None:
    c = Cluster()
    for name, seeds in {"A": "BC", "B": "AC"}.items():
        c.start(name, seeds=seeds)
    c.advance(30_000)
    assert "no member names itself as the first seed and C:5701 does not answer" in c.finished["A"].reason


class TestRule:
    """The rule alone."""

    def asked_by(self, *others: str, may_found: bool = False, names: str = "ABC") -> MutualSeeds:
        seeds = MutualSeeds(address("A"), [address("B"), address("C")])
        for each in "BC":
            seeds.on_answer(address(each))
        for each in others:
            known = [address(name) for name in names if name != each]
            seeds.on_joiner(address(each), known, may_found=may_found and each == others[-1])
        return seeds

    def test_all_have_to_ask(self) -> None:
        assert not self.asked_by("B").is_founder()
        assert self.asked_by("B", "C").is_founder()

    def test_all_have_to_answer(self) -> None:
        seeds = self.asked_by()
        seeds.begin_attempt()
        seeds.on_answer(address("B"))
        for name, known in {"B": "AC", "C": "AB"}.items():
            seeds.on_joiner(address(name), map(address, known), may_found=False)
        assert not seeds.is_founder()
        seeds.on_answer(address("C"))
        assert seeds.is_founder()

    def test_who_may_form_a_cluster_by_another_rule_has_precedence(self) -> None:
        assert not self.asked_by("B", "C", "D", may_found=True).is_founder()
        assert self.asked_by("B", "C", "D").is_founder(), "D names them all, and forms nothing"

    def test_all_have_to_name_the_same(self) -> None:
        assert not self.asked_by("B", "C", names="ABCD").is_founder()

    def test_answers_count_for_one_attempt(self) -> None:
        seeds = self.asked_by("B", "C")
        seeds.begin_attempt()
        assert not seeds.is_founder()

    def test_only_the_smallest_does(self) -> None:
        seeds = MutualSeeds(address("B"), [address("A")])
        seeds.on_answer(address("A"))
        seeds.on_joiner(address("A"), [address("B")], may_found=False)
        assert not seeds.is_founder()
