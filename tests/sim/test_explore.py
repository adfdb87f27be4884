"""Every history of three and four members within bounds: what no drawn history may happen to meet."""

import pytest

from phalanx.common.ids import MemberId
from phalanx.common.view import MembersView
from phalanx.membership.claim.claim_answers import ClaimAnswers
from phalanx.membership.claim.mastership_claim import Claim
from phalanx.membership.claim.succession import Succession
from phalanx.membership.role import Role, RoleEvent
from phalanx.wire import messages as m
from phalanx_proof.sim.exploration import fair_schedule
from phalanx_proof.sim.exploration.canonical_form import CLOCK_START, FAR_MS, form_of
from phalanx_proof.sim.exploration.initial_states import STARTS, begin
from phalanx_proof.sim.exploration.search import Exploration, Explored, replay
from phalanx_proof.sim.exploration.world import Action, ExplorationLimits, ExploredWorld

ROWS = ("CS-21", "CS-24", "CS-25", "CS-54", "CS-55", "CS-57", "CS-58", "CS-60", "CS-63", "CS-65", "CS-66")


def explore(members: int, start: str, depth: int, **limits: int) -> Explored:
    usual = {"crashes": 0, "breaks": 0, "suspicions": 0, "times": 0, "cuts": 0, "leaves": 0, "returns": 0}
    return Exploration(members, start, ExplorationLimits(**(usual | limits))).run(depth)


def told(result: Explored) -> str:
    return "\n".join(
        f"{f.what}: {f.story}\n    phalanx simulate --explore {result.members} --start {result.start} --replay '{f.steps}'"
        for f in result.findings
    )


IN_BRIEF = [
    # members, start, depth, limits, and how many states there are at least
    (3, "agreed", 4, {"crashes": 1, "suspicions": 2, "times": 2}, 2_900),
    pytest.param(3, "agreed", 5, {"crashes": 1, "suspicions": 2, "times": 2}, 9_000, marks=pytest.mark.long),
    (3, "agreed", 4, {"crashes": 1, "suspicions": 1, "times": 1, "breaks": 1}, 3_450),
    pytest.param(
        3, "agreed", 5, {"crashes": 1, "suspicions": 1, "times": 1, "breaks": 1}, 9_000, marks=pytest.mark.long
    ),
    (3, "agreed", 4, {"crashes": 1, "suspicions": 1, "times": 1, "cuts": 1}, 2_650),
    pytest.param(3, "agreed", 5, {"crashes": 1, "suspicions": 1, "times": 1, "cuts": 1}, 6_600, marks=pytest.mark.long),
    (3, "agreed", 4, {"leaves": 1, "crashes": 1, "suspicions": 1, "times": 1}, 2_500),
    pytest.param(
        3, "agreed", 5, {"leaves": 1, "crashes": 1, "suspicions": 1, "times": 1}, 5_000, marks=pytest.mark.long
    ),
    (3, "behind", 4, {"crashes": 1, "suspicions": 2, "times": 2}, 2_000),
    pytest.param(3, "behind", 5, {"crashes": 1, "suspicions": 2, "times": 2}, 6_000, marks=pytest.mark.long),
    (3, "suspecting", 4, {"crashes": 1, "suspicions": 1, "times": 2}, 1_500),
    pytest.param(3, "suspecting", 5, {"crashes": 1, "suspicions": 1, "times": 2}, 4_850, marks=pytest.mark.long),
    pytest.param(3, "suspecting", 6, {"crashes": 1, "suspicions": 1, "times": 2}, 9_000, marks=pytest.mark.long),
    pytest.param(4, "agreed", 5, {"suspicions": 4}, 6_000, marks=pytest.mark.long),
    (4, "removal", 4, {"crashes": 1, "suspicions": 1, "times": 1}, 2_150),
    pytest.param(4, "removal", 5, {"crashes": 1, "suspicions": 1, "times": 1}, 6_000, marks=pytest.mark.long),
    (4, "admission", 4, {"suspicions": 1, "times": 1}, 2_500),
    (4, "suspecting", 3, {"crashes": 1, "suspicions": 1, "times": 1}, 900),
    pytest.param(
        3, "agreed", 8, {"returns": 1, "crashes": 1, "suspicions": 1, "times": 1}, 15_000, marks=pytest.mark.long
    ),
    pytest.param(3, "removal", 7, {"returns": 2, "suspicions": 1, "times": 2}, 10_000, marks=pytest.mark.long),
    (3, "removal", 20, {"crashes": 1, "suspicions": 1, "times": 3}, 200),
    (3, "admission", 7, {"crashes": 1, "suspicions": 1, "times": 2}, 7_000),
    pytest.param(3, "admission", 9, {"crashes": 1, "suspicions": 1, "times": 2}, 10_000, marks=pytest.mark.long),
    pytest.param(4, "ring", 4, {"crashes": 1, "suspicions": 2, "times": 1}, 4_000, marks=pytest.mark.long),
    pytest.param(4, "ring-removal", 6, {"crashes": 1, "suspicions": 1, "times": 1}, 8_000, marks=pytest.mark.long),
]
AT_LENGTH = [
    (3, "agreed", 8, {"crashes": 1, "suspicions": 2, "times": 2}, 50_000),
    (3, "agreed", 8, {"crashes": 1, "suspicions": 1, "times": 1, "breaks": 1}, 50_000),
    (3, "agreed", 9, {"crashes": 1, "suspicions": 1, "times": 1, "cuts": 1}, 30_000),
    (3, "agreed", 8, {"leaves": 1, "crashes": 1, "suspicions": 1, "times": 1}, 30_000),
    (3, "behind", 8, {"crashes": 1, "suspicions": 2, "times": 2}, 80_000),
    (3, "suspecting", 10, {"crashes": 1, "suspicions": 1, "times": 2}, 30_000),
    (4, "agreed", 10, {"suspicions": 4}, 100_000),
    (4, "removal", 9, {"crashes": 1, "suspicions": 1, "times": 1}, 40_000),
    (4, "admission", 7, {"suspicions": 1, "times": 1}, 40_000),
    (4, "suspecting", 7, {"crashes": 1, "suspicions": 1, "times": 1}, 30_000),
    (3, "agreed", 12, {"crashes": 1, "suspicions": 2, "times": 2}, 700_000),
    (3, "suspecting", 10, {"crashes": 1, "suspicions": 2, "times": 3}, 400_000),
    (3, "agreed", 8, {"leaves": 1, "crashes": 1, "suspicions": 1, "times": 1, "breaks": 1}, 500_000),
    (4, "agreed", 7, {"crashes": 1, "suspicions": 3, "times": 1}, 800_000),
    (3, "agreed", 8, {"returns": 2, "crashes": 1, "suspicions": 2, "times": 1}, 50_000),
    (4, "agreed", 6, {"returns": 1, "crashes": 1, "suspicions": 2, "times": 1}, 100_000),
    (4, "ring", 6, {"crashes": 1, "suspicions": 2, "times": 1}, 100_000),
    (4, "removal", 10, {"crashes": 1, "suspicions": 2, "times": 2}, 300_000),
]


@pytest.mark.rows(*ROWS)
@pytest.mark.parametrize(("members", "start", "depth", "limits", "at_least"), IN_BRIEF)
def test_all_histories_within_narrow_bounds(
    members: int, start: str, depth: int, limits: dict[str, int], at_least: int
) -> None:
    result = explore(members, start, depth, **limits)
    assert not result.findings, told(result)
    assert result.states >= at_least, "the exploration has become blind"


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.rows(*ROWS)
@pytest.mark.parametrize(("members", "start", "depth", "limits", "at_least"), AT_LENGTH)
def test_all_histories_within_wider_bounds(
    members: int, start: str, depth: int, limits: dict[str, int], at_least: int
) -> None:
    test_all_histories_within_narrow_bounds(members, start, depth, limits, at_least)


def test_the_same_exploration_finds_the_same_states() -> None:
    one, other = (explore(3, "behind", 5, crashes=1, suspicions=1, times=1) for _ in range(2))
    assert (one.states, one.transitions, one.member_states) == (other.states, other.transitions, other.member_states)


def test_an_exploration_ends_where_nothing_is_left() -> None:
    result = explore(3, "agreed", 40, crashes=1, suspicions=1)
    assert result.is_exhausted
    assert result.depth < 40
    assert result.states == explore(3, "agreed", result.depth, crashes=1, suspicions=1).states


# --- ways that were found once -----------------------------------------------------------------------------------------

FOUND = [
    # A removes C, and only D hears of it; B's claim is agreed to by both: C came back, behind the younger D.
    (4, "agreed", "suspect C>A, deliver A>D, suspect A>B, suspect A>C, deliver B>C, deliver C>B, suspect A>D, "
                  "deliver B>D, deliver D>B"),
    (4, "agreed", "suspect C>A, suspect D>A, suspect A>B"),
    # The master whom a claimer suspects is heard again while it claims: it may go on.
    (3, "agreed", "suspect A>B, time A, deliver A>B"),
    # A claimer is told that others went on without it, and decides at a deadline to come back to them.
    (3, "agreed", "suspect B>C, time A, crash A, suspect A>B, suspect A>C"),
    # The mastership is handed to a member that suspects another, which had to go then, dead or not.
    (3, "agreed", "leave A, suspect C>B, release A, deliver A>B"),
    (4, "agreed", "leave A, release A, crash C, suspect C>B, deliver A>B"),
    # On the ring C, which does not know that it was removed, sent nothing to the new master that named its view.
    (4, "ring", "suspect C>A, crash A"),
    (4, "ring-removal", "lose A>C, suspect C>B"),
]  # fmt: skip


@pytest.mark.rows("CS-66")
@pytest.mark.parametrize(("members", "start", "steps"), FOUND)
def test_a_way_that_was_found_breaks_nothing_any_more(members: int, start: str, steps: str) -> None:
    lines, broken = replay(members, start, steps)
    assert not broken, "\n".join(lines)


# --- it is not blind ---------------------------------------------------------------------------------------------------


def agree_at_once(self: ClaimAnswers, sender: MemberId, message: m.MastershipClaim, now: int) -> None:
    """Planted: agreement with a claim whomever this member suspects."""
    state = self._state
    if state.view is not None and sender in state.view.members and state.role in (Role.SLAVE, Role.CLAIMING):
        self._succession.end()
        state.follow(sender, RoleEvent.AGREES)
        self._local.out.send(sender, m.ClaimAnswer(message.claim_id, True, state.view))


def claim_too_soon(self: Succession, now: int) -> None:
    """Planted: a claim as soon as the master is suspected."""
    state = self._state
    if state.role is Role.SLAVE and state.master in self._suspicions.suspected:
        self._start(state.joined(), now)


def low_version(self: Claim) -> object:
    """Planted: the final version is above the claimer's own only."""
    view = final_view(self)
    return type(view)(self._views[self._this].version + 1, view.maker, view.members)


def take_everybody(self: Claim) -> object:
    """Planted: the final list holds everybody that was asked."""
    view = final_view(self)
    rest = tuple(sorted(self._states.keys() - set(view.members)))
    return type(view)(view.version, view.maker, view.members + rest)


def as_agreed(self: Claim) -> object:
    """Planted: the order of the final list is that of the answers."""
    view = final_view(self)
    return type(view)(view.version, view.maker, tuple(member for member in self._views if member in view.members))


def follow_anybody(self: ClaimAnswers, sender: MemberId, update: MembersView) -> bool:
    """Planted: a newer list is taken whoever made it."""
    return True


def leave_it_to_others(self: Succession, now: int) -> None:
    """Planted: nobody claims the mastership."""


final_view = Claim.final_view

PLANTED = [
    # what is replaced by what, members, start, depth (at least as many steps as the bug takes), and what tells of it
    (
        ClaimAnswers,
        "on_mastership_claim",
        agree_at_once,
        4,
        "agreed",
        3,
        "CS-58 agreement only if all older are suspected",
    ),
    (Succession, "claim_if_due", claim_too_soon, 4, "agreed", 3, "CS-54 a claim needs all older suspected"),
    (ClaimAnswers, "may_follow", follow_anybody, 3, "agreed", 6, "CS-55 no list of an older master"),
    (Succession, "claim_if_due", leave_it_to_others, 3, "agreed", 2, "fair schedules end in agreement"),
    (Claim, "final_view", low_version, 4, "behind", 4, "CS-65 the final version is above all"),
    (Claim, "final_view", take_everybody, 4, "agreed", 3, "CS-63 the final list holds those that agreed"),
    (Claim, "final_view", as_agreed, 4, "agreed", 3, "age order"),
]


@pytest.mark.parametrize(
    ("owner", "name", "planted", "members", "start", "depth", "what"),
    PLANTED,
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    planted: object,
    members: int,
    start: str,
    depth: int,
    what: str,
) -> None:
    monkeypatch.setattr(owner, name, planted)
    # A schedule that never ends in agreement is told after so many moves; those that do end take fewer.
    monkeypatch.setattr(fair_schedule, "MOST_MOVES", 300)
    result = explore(members, start, depth, crashes=1, suspicions=1)
    assert what in {finding.what for finding in result.findings}, told(result)
    (found,) = [finding for finding in result.findings if finding.what == what]
    _, broken = replay(members, start, found.steps)
    assert what in {each for each, _ in broken}, "the steps repeat it"


# --- its parts ---------------------------------------------------------------------------------------------------------


def test_steps_are_read_as_they_are_told() -> None:
    world = ExploredWorld(3, ExplorationLimits(returns=1))
    steps = [
        Action("deliver", 1, 0),
        Action("crash", 2),
        Action("suspect", 0, 2),
        Action("time", 1),
        Action("return", 5),
    ]
    told = ", ".join(map(world.tell, steps))
    assert told == "deliver A>B, crash C, suspect C>A, time B, return c"
    assert world.read(told) == steps


@pytest.mark.parametrize("text", ["deliver A", "crash A>B", "crash", "fly A", "deliver A>Z", "time AB", "crash a"])
def test_what_is_no_step_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a step"):
        ExploredWorld(3, ExplorationLimits()).read(text)


def test_what_cannot_be_done_is_not_replayed() -> None:
    for steps in ("deliver A>B", "crash A, time A", "crash D", "return a"):
        with pytest.raises(ValueError):
            replay(3, "agreed", steps)


def test_a_form_takes_times_relative_to_the_clock_and_keeps_all_else() -> None:
    now = CLOCK_START + 500
    assert form_of({"at": now + 20, "n": 3}, now) == form_of({"at": now + 120, "n": 3}, now + 100)
    assert form_of({"at": now + 20}, now) != form_of({"at": now + 21}, now)
    assert form_of([now + FAR_MS], now) == form_of([now + 2 * FAR_MS], now)
    assert form_of({3, 1, 2}, now) == form_of({2, 3, 1}, now)
    assert form_of({"a": 1, "b": 2}, now) != form_of({"b": 2, "a": 1}, now)


@pytest.mark.parametrize("start", STARTS)
def test_a_start_has_nothing_used_up_and_breaks_no_rule(start: str) -> None:
    limits = ExplorationLimits(crashes=1, breaks=1, suspicions=1, times=1, cuts=1, leaves=1, returns=1)
    world, state = begin(start, 4, limits)
    assert all(world.is_left(state, what) for what in ("crash", "break", "suspect", "time", "cut", "leave", "return"))
    assert not [found for member in world.running(state) for found in world.find_conflicts(state, member)]


def test_starts_are_what_they_say() -> None:
    versions = {}
    for name in STARTS:
        world, state = begin(name, 4, ExplorationLimits())
        seen = [world.states.seen[state[member]] for member in world.running(state)]
        versions[name] = [each.view.version if each and each.view else 0 for each in seen]
    assert versions == {
        "agreed": [4, 4, 4, 4], "behind": [4, 4, 3, 4], "suspecting": [4, 4, 4, 4], "removal": [4, 4], "admission": [3, 3, 0],
        "ring": [4, 4, 4, 4], "ring-removal": [4, 4],
    }  # fmt: skip
