"""The transition tables are what the machines do: driven at random, they change in no other way; and the page shows them."""

import enum
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.common.errors import InvariantViolation
from phalanx.common.hidden_maps import StagedStep
from phalanx.common.transitions import TransitionTable
from phalanx.grid.migration_source import STAGE_CHANGES
from phalanx.grid.replica.staged import STAGED_CHANGES
from phalanx.grid.replication.progress import STREAM_CHANGES, StreamState
from phalanx.machine.inputs import LinkLost, LinkRefused, LinkUp
from phalanx.membership.claim.mastership_claim import CLAIM_CHANGES, Claim, ClaimState
from phalanx.membership.detect.suspicion import TRUST_CHANGES, Trust
from phalanx.membership.partial.resolution import RESOLUTION_CHANGES
from phalanx.membership.role import ROLE_CHANGES, Role, RoleEvent
from phalanx.partition.migration_phases import MIGRATION_CHANGES
from phalanx.wire import messages as m
from support.harness import Lone, lone_context, lone_id, lone_view
from support.roots import SCRIPTS

NAMES = "ABDE"


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("event", RoleEvent)
def test_an_event_that_is_not_in_the_table_is_refused_with_its_story(role: Role, event: RoleEvent) -> None:
    if (role, event) in ROLE_CHANGES:
        assert ROLE_CHANGES.next(role, event) is ROLE_CHANGES[role, event]
    else:
        with pytest.raises(InvariantViolation, match=f"state=.*{role.name}.*event=.*{event.name}"):
            ROLE_CHANGES.next(role, event)


def test_every_role_is_reached_and_only_the_end_is_final() -> None:
    assert {*ROLE_CHANGES.values(), Role.JOINING} == set(Role)
    assert {role for role, _ in ROLE_CHANGES} == set(Role) - {Role.OVER}


@given(st.data())
def test_what_a_member_thinks_of_others_changes_as_the_table_says(data: st.DataObject) -> None:
    """A member of a ring, so that questions come up, hears, loses and waits; each change of trust is in the table."""
    c = Lone("C", "ABCDEFGH", 8, ring_above_members=3, ring_neighbours=1, heartbeat_timeout_ms=3_000)
    allowed = {(before, after) for (before, _), after in TRUST_CHANGES.items()}
    for _ in range(data.draw(st.integers(1, 25))):
        before = {name: c.membership.suspicions.trust_in(lone_id(name)) for name in NAMES}
        name = data.draw(st.sampled_from(NAMES))
        match data.draw(st.sampled_from(["hear", "lose", "refuse", "open", "report", "wait", "update"])):
            case "hear":
                c.hear(name, m.Heartbeat(8, lone_id("A")))
            case "lose":
                c.feed(LinkLost(lone_id(name)))
            case "refuse":
                c.feed(LinkRefused(lone_id(name), "refused"))
            case "open":
                c.feed(LinkUp(lone_id(name)))
            case "report":
                c.hear("F", m.SuspicionReport(lone_id(name), "silent"))
            case "wait":
                c.advance(data.draw(st.sampled_from([50, 400, 2_500])))
            case "update":
                version = c.membership.view.version + 1 if c.membership.view is not None else 0
                c.hear("A", m.MembersUpdate(lone_view("ABCEFGH", version, maker="A")))
        if c.finished is not None:
            return
        for other in NAMES:
            now = c.membership.suspicions.trust_in(lone_id(other))
            steps = {(before[other], now), (before[other], Trust.SUSPECTED), (Trust.SUSPECTED, now)}
            assert before[other] is now or steps <= allowed | {(now, now)} or (before[other], now) in allowed


ALL_TABLES = [
    ROLE_CHANGES,
    TRUST_CHANGES,
    CLAIM_CHANGES,
    RESOLUTION_CHANGES,
    STREAM_CHANGES,
    MIGRATION_CHANGES,
    STAGE_CHANGES,
    STAGED_CHANGES,
]


@pytest.mark.parametrize("table", ALL_TABLES, ids=repr)
def test_each_state_of_a_table_is_reached_and_each_event_is_of_use(
    table: TransitionTable[enum.Enum, enum.Enum],
) -> None:
    (first, event), *_ = table
    reached = {first, StreamState.COPYING} if table is STREAM_CHANGES else {first}
    for _ in table:
        reached |= {after for (before, _), after in table.items() if before in reached}
    assert reached == set(type(first))
    assert {each for _, each in table} == USED.get(id(table), set(type(event)))


USED = {id(STAGED_CHANGES): set(StagedStep) - {StagedStep.REPLACE, StagedStep.CHECK}}
"""Turns that change nothing by their table."""


@given(st.data())
def test_members_stand_to_a_claim_as_the_table_says(data: st.DataObject) -> None:
    claim = Claim(lone_context("B"), 1, lone_view("ABCDE", 5), (10_000, 100))
    allowed = {(before, after) for (before, _), after in CLAIM_CHANGES.items()}
    claim.ask_younger(lone_view("ABCD", 5), (), 0)
    for now in range(data.draw(st.integers(1, 20))):
        before = {name: claim.state_of(lone_id(name)) for name in "CDE"}
        name = data.draw(st.sampled_from("CDE"))
        match data.draw(st.sampled_from(["agrees", "not yet", "joins", "fails", "refused", "ask"])):
            case "agrees":
                claim.on_answer(lone_id(name), m.ClaimAnswer(1, True, lone_view("ABCDE", 5)), (), now)
            case "not yet":
                claim.on_answer(lone_id(name), m.ClaimAnswer(1, False, lone_view("ABCDE", 5)), (), now)
            case "joins":
                claim.on_answer(lone_id(name), m.ClaimAnswer(1, False, None, is_joining=True), (), now)
            case "fails":
                claim.leave_out(lone_id(name))
            case "refused":
                claim.on_refused(lone_id(name), 0, now)
            case "ask":
                claim.ask_again(now * 200)
        for other in "CDE":
            after = claim.state_of(lone_id(other))
            assert before[other] is after or (before[other], after) in allowed
    assert {member for member in "CDE" if claim.state_of(lone_id(member)) is ClaimState.AGREED} == {
        member for member in "CDE" if lone_id(member) in claim.final_view()
    }


def test_the_diagrams_of_the_page_are_drawn_from_the_tables() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPTS / "diagrams.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
