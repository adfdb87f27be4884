"""When all members of a cluster are started again, one of them forms it at once, and only one (PX-54)."""

from itertools import permutations

import pytest

from phalanx.wire.messages import JoinRefused
from phalanx.wire.view_events import ViewInstalled
from support.harness import Cluster


def switched_off(names: str) -> Cluster:
    """A cluster whose members have folders, and were all killed at once."""
    c = Cluster(names, has_folders=True, seeds=names, restart_grace_ms=1_000)
    c.advance(10_000)
    c.crash(names)
    c.advance(60_000)
    return c


def formed(c: Cluster) -> list[str]:
    """The rules by which clusters were formed since all were killed."""
    rules = [event.rule for _, event in c.events if isinstance(event, ViewInstalled) and event.view_version == 1]
    return rules[1:]


@pytest.mark.rows("PX-54")
@pytest.mark.parametrize("order", [*permutations("ABC")])
def test_they_form_one_cluster_within_a_second_of_the_last_start(order: tuple[str, ...]) -> None:
    """PX-54."""
    c = switched_off("ABC")
    for name in order:
        c.start(name)
        c.advance(300)
    c.advance(1_000)
    assert {"".join(sorted(view)) for view in c.views_of("ABC")} == {"ABC"}
    assert c.views_of("A")[0].startswith("A"), "the smallest has formed it"
    assert [rule[:5] for rule in formed(c)] == ["PX-54"]


@pytest.mark.rows("PX-54")
def test_nobody_forms_one_before_the_end_of_a_round_while_one_of_them_is_not_there() -> None:
    """It can be in a cluster that these do not reach."""
    c = switched_off("ABC")
    for name in "AB":
        c.start(name)
    c.advance(4_500)
    assert c.views_of("AB") == ["", ""]
    c.advance(5_000)
    assert {"".join(sorted(view)) for view in c.views_of("AB")} == {"AB"}


@pytest.mark.rows("PX-54")
def test_nobody_forms_one_at_once_while_another_knows_more_members() -> None:
    """What B knows and A does not can be a cluster."""
    c = switched_off("ABC")
    c.start("A")
    c.start("B")
    c.start("C", seeds="ABCD")
    c.advance(4_500)
    assert c.views_of("ABC") == ["", "", ""]


def test_a_new_member_is_no_reason_to_form_one() -> None:
    """C has lost its folder, and forms the cluster by its own rule, because it names itself first."""
    c = switched_off("ABC")
    c.lose_folder("C")
    c.cuts |= {frozenset("BC")}
    c.start("A")
    c.start("B")
    c.start("C", seeds="CAB")
    c.advance(4_500)
    assert [rule[:5] for rule in formed(c)] == ["EL-05"]


def test_who_has_asked_and_has_not_answered_can_be_in_a_cluster_by_now() -> None:
    c = switched_off("ABC")
    c.swallow = lambda sender, receiver, message: (sender, receiver) == ("B", "A") and isinstance(message, JoinRefused)
    for name in "ABC":
        c.start(name)
    c.advance(4_500)
    assert formed(c) == []
