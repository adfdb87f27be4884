"""The schema of a map, as a setting that writers change: what is answered when, and what outlives whom."""

from typing import Any

import pytest

from phalanx.common import map_plan
from phalanx.common.errors import ErrorCode, UsageError
from phalanx.common.hidden_maps import StagedStep
from phalanx.common.map_plan import Content, MapPlan
from phalanx.common.map_schema import Column, IntType, TextType, make_schema
from phalanx.common.map_settings import MapChange
from phalanx.wire import messages as m
from support import jobs
from support.harness import KEY, MAP, TEXT, Cluster

BEGIN, DECIDE, ABORT = m.Replacement.BEGIN, m.Replacement.DECIDE, m.Replacement.ABORT


def schema(*names: str) -> str:
    columns = tuple(Column(name, IntType(32)) for name in names)
    return make_schema((Column("id", TextType()), *columns), ("id",)).to_json()


ONE, TWO, THREE = schema("a"), schema("a", "b"), schema("a", "b", "c")


def cluster(names: str = "ABC") -> Cluster:
    c = Cluster(names)
    c.assign(rows=["AB"])
    return c


def ask(c: Cluster, text: str, before: str | None = None, name: str = MAP) -> Any:
    request = c.ask("A", m.ChangeMap, name, MapChange(schema=text), before)
    c.settle()
    return c.replies[request]


def change(c: Cluster, text: str, before: str | None = None) -> Any:
    """Asked until it is done or refused, as a client does."""
    for _ in range(20):
        reply = ask(c, text, before)
        if not (isinstance(reply, m.ErrorReply) and reply.code is ErrorCode.NOT_READY):
            return reply
        c.advance(20)
    return reply


def refused(reply: Any) -> str:
    assert isinstance(reply, m.ErrorReply), reply
    assert reply.code is ErrorCode.INVALID
    return reply.text


def is_not_known(reply: Any) -> bool:
    return isinstance(reply, m.ErrorReply) and (reply.code, reply.text) == (
        ErrorCode.NOT_READY,
        "not every member knows of it yet: ask again",
    )


def schemas(c: Cluster, names: str = "ABC") -> list[str]:
    return [c.table(name).maps.of(MAP).schema for name in names]


@pytest.mark.rows("PX-09")
def test_a_schema_is_set_when_every_member_knows_it() -> None:
    """1. The writer would store rows by it; 2. the master dies; 3. the next one must know by what they are read."""
    c = cluster()
    c.hold("A", "C")
    for _ in range(3):
        assert is_not_known(ask(c, ONE))
    version = c.table("A").version
    c.release()
    c.settle()
    assert isinstance(change(c, ONE), m.DoneReply)
    assert c.table("A").version == version, "who asks again changes nothing"
    assert schemas(c) == [ONE] * 3
    c.crash("A")
    c.advance(5_000)
    assert schemas(c, "BC") == [ONE] * 2


@pytest.mark.rows("PX-09")
def test_who_finds_a_schema_that_not_every_member_knows_waits_as_well() -> None:
    c = cluster()
    c.hold("A", "C")
    ask(c, ONE)
    assert is_not_known(ask(c, ONE, ONE))
    c.release()
    c.settle()
    assert isinstance(change(c, ONE, ONE), m.DoneReply)


@pytest.mark.rows("PX-09")
def test_a_schema_that_was_made_of_another_one_than_the_map_has_is_refused() -> None:
    """Of two writers that widen it, the later one has to look again: else it would take the other's columns away."""
    c = cluster()
    assert isinstance(change(c, ONE, ""), m.DoneReply)
    assert isinstance(change(c, TWO, ONE), m.DoneReply)
    assert "the schema of the map 'm' was changed by others meanwhile" in refused(change(c, schema("a", "z"), ONE))
    assert isinstance(change(c, TWO, ONE), m.DoneReply), "that is what it has: the answer was late"
    assert isinstance(change(c, "", None), m.DoneReply), "who says of which it was made of none may do so"
    assert (schemas(c), c.table("A").maps.maps) == ([""] * 3, ())


@pytest.mark.rows("PX-09")
def test_what_is_no_schema_and_what_is_of_more_than_one_map_is_refused() -> None:
    c = cluster()
    assert "is not a schema of Arrow as JSON" in refused(ask(c, "{"))
    for name in ("", "*", "m*"):
        assert "a schema is of one map: give the map's own name" in refused(ask(c, ONE, name=name))
    assert "is not a schema of Arrow as JSON" in refused(jobs.Job(c).wish_until("A", BEGIN, schema="{"))
    assert c.table("A").maps.contents == ()


def begun(c: Cluster, text: str | None, name: str = "j1") -> jobs.Job:
    job = jobs.Job(c, name)
    job.stage("A", "t1", [KEY], TEXT + name.encode())
    c.settle()
    assert not isinstance(job.wish_until("A", BEGIN, schema=text), m.ErrorReply)
    job.ask("A", StagedStep.ASSEMBLE, "t1")
    c.settle()
    return job


@pytest.mark.rows("PX-09")
def test_new_content_brings_its_schema_with_the_decision_and_not_before() -> None:
    c = cluster()
    change(c, ONE)
    job = begun(c, TWO)
    assert schemas(c) == [ONE] * 3
    assert job.wish_until("A", DECIDE).flag
    assert schemas(c) == [TWO] * 3
    assert c.table("A").maps.content_of(MAP).pending_schema is None
    begun(c, None, "j2").wish_until("A", DECIDE)
    assert schemas(c) == [TWO] * 3, "a job that says nothing of it leaves it"
    begun(c, THREE, "j3").wish_until("A", ABORT)
    assert schemas(c) == [TWO] * 3
    begun(c, "", "j4").wish_until("A", DECIDE)
    assert schemas(c) == [""] * 3


@pytest.mark.rows("PX-09")
def test_the_next_master_puts_content_and_schema_in_place_together() -> None:
    c = cluster()
    job = begun(c, TWO)
    c.hold("B", "A")
    c.hold("C", "A")
    job.wish("A", DECIDE)  # all know of the decision, and the master hears that from nobody
    c.settle()
    assert schemas(c) == [""] * 3
    c.crash("A")
    c.advance(10_000)
    assert schemas(c, "BC") == [TWO] * 2
    assert c.table("B").maps.content_of(MAP).job == "j1"


def test_the_schemas_of_all_maps_have_a_bound_that_what_is_pending_counts_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_plan, "MAX_SCHEMAS_LENGTH", len(ONE) + len(TWO))
    plan = MapPlan().with_change("a", MapChange(schema=ONE))
    plan = plan.with_content(Content("b", pending="j", pending_stamp=1, pending_schema=TWO))
    for _ in range(2):
        with pytest.raises(
            UsageError,
            match=r"schemas of other maps have .* drop one that nobody needs \(phalanx map schema NAME --clear\)",
        ):
            plan.with_change("c", MapChange(schema=ONE))
        plan = plan.with_placed(plan.content_of("b"))
    assert plan.of("b").schema == TWO
    assert plan.with_change("a", MapChange(schema=ONE)).of("a").schema == ONE
    assert plan.with_change("b", MapChange(schema="")).with_change("c", MapChange(schema=ONE)).of("c").schema == ONE


def test_content_that_is_pending_with_a_schema_has_its_place_among_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_plan, "MAX_NAMED_SETTINGS", 2)
    plan = MapPlan().with_change("a", MapChange(max_entries=1))
    plan = plan.with_content(Content("b", pending="j", pending_stamp=1, pending_schema=TWO))
    with pytest.raises(UsageError, match="settings are set for 2 names, and 'c' would be one more than 2"):
        plan.with_change("c", MapChange(max_entries=1))
    assert [name for name, _ in plan.with_placed(plan.content_of("b")).maps] == ["a", "b"]


def test_a_schema_leaves_the_other_settings_of_its_map() -> None:
    plan = MapPlan().with_change("a", MapChange(max_entries=1)).with_change("a", MapChange(schema=ONE))
    assert (plan.of("a").max_entries, plan.of("a").schema, plan.of("b").schema) == (1, ONE, "")
    assert plan.with_change("a", MapChange(schema="")).maps == (("a", MapChange(max_entries=1, schema="")),)
