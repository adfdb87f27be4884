"""Every history of a few members, up to a bound: breadth first over all states that the real machines can reach.

`world` says what can happen next in a state, `rules` what must hold, and `fair_schedule` what must follow. Two paths to the
same state are one, so the first path found is a shortest one; it is shown as a list of steps that `replay` repeats.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Sequence

import msgspec

from phalanx_proof.sim.exploration.fair_schedule import Settling
from phalanx_proof.sim.exploration.initial_states import begin
from phalanx_proof.sim.exploration.member import OVER
from phalanx_proof.sim.exploration.rules import Broken
from phalanx_proof.sim.exploration.world import Action, ExplorationLimits, WorldState
from phalanx_proof.sim.story import short

MOST_FINDINGS = 12
EVERYTHING = ExplorationLimits(crashes=15, breaks=15, suspicions=15, times=15, cuts=15, leaves=15, returns=15)


class ExplorationFinding(msgspec.Struct, frozen=True):
    """A rule that can be broken, and a shortest path to it."""

    what: str
    story: str
    steps: str
    """From the start, as `replay` takes it."""
    afterwards: str = ""
    """What a fair schedule did then."""


class Explored(msgspec.Struct, kw_only=True):
    """What an exploration went through."""

    members: int
    start: str
    limits: ExplorationLimits
    depth: int
    """Steps from the start to the farthest state that was gone through."""
    is_exhausted: bool
    """Whether no state is left within the limits, however deep."""
    states: int
    transitions: int
    member_states: int
    steps_worked_out: int
    fair_moves: int
    findings: list[ExplorationFinding]
    counts: dict[str, int]
    """Broken rule to the number of transitions that broke it."""
    cpu_s: float


class Exploration:
    """One search. `run` can be called once."""

    def __init__(self, members: int, start: str, limits: ExplorationLimits, *, with_settling: bool = True) -> None:
        self._name = start
        self._limits = limits
        self._members = members
        self.world, self._start = begin(start, members, limits)
        self._settling = Settling(self.world) if with_settling else None
        self._came_from: dict[WorldState, tuple[WorldState, Action] | None] = {self._start: None}
        self._findings: dict[str, ExplorationFinding] = {}
        self._counts: Counter[str] = Counter()
        self._transitions = 0

    def run(self, depth: int, most_states: int = 10_000_000) -> Explored:
        """Go through all states up to a depth, or until there are too many."""
        began = time.process_time()
        was_enabled = gc.isenabled()
        gc.disable()  # nothing here is garbage, and there is much to look through
        try:
            reached, frontier = self._layers(depth, most_states)
        finally:
            if was_enabled:
                gc.enable()
        return Explored(
            members=self._members, start=self._name, limits=self._limits, depth=reached, is_exhausted=not frontier,
            states=len(self._came_from), transitions=self._transitions, member_states=len(self.world.states),
            steps_worked_out=self.world.states.worked_out, fair_moves=self._settling.moves if self._settling else 0,
            findings=list(self._findings.values()), counts=dict(self._counts),
            cpu_s=round(time.process_time() - began, 3),
        )  # fmt: skip

    def _layers(self, depth: int, most_states: int) -> tuple[int, list[WorldState]]:
        frontier = [self._start]
        self._look_ahead(self._start)
        for reached in range(depth):
            following: list[WorldState] = []
            for state in frontier:
                self._expand(state, following)
                if len(self._came_from) >= most_states:
                    return reached, following
            if not following:
                return reached, []
            frontier = following
        return depth, frontier

    def _expand(self, state: WorldState, following: list[WorldState]) -> None:
        world, came_from = self.world, self._came_from
        for action in world.enabled(state):
            after, step = world.act(state, action)
            self._transitions += 1
            if step is not None:
                broken = [*step.broken, *world.find_conflicts(after, action.member)]
                if broken:
                    # What follows from a broken rule is not another violation.
                    self._found(broken, [*self._path_to(state), action])
                    continue
            if after not in came_from:
                came_from[after] = (state, action)
                following.append(after)
                self._look_ahead(after)

    def _look_ahead(self, state: WorldState) -> None:
        if self._settling is None:
            return
        broken, then = self._settling.find_broken(state)
        if broken:
            self._found(broken, self._path_to(state), then)

    def _path_to(self, state: WorldState) -> list[Action]:
        path: list[Action] = []
        came_from = self._came_from[state]
        while came_from is not None:
            state, action = came_from
            path.append(action)
            came_from = self._came_from[state]
        return path[::-1]

    def _found(self, broken: Sequence[Broken], path: list[Action], then: Sequence[Action] = ()) -> None:
        for what, story in broken:
            self._counts[what] += 1
            if what not in self._findings and len(self._findings) < MOST_FINDINGS:
                steps, afterwards = (", ".join(map(self.world.tell, each)) for each in (path, then))
                self._findings[what] = ExplorationFinding(what, short(story), steps, afterwards)


def explore(members: int, start: str, limits: ExplorationLimits, depth: int, **options: bool) -> Explored:
    """Go through all histories of a few members within the limits."""
    return Exploration(members, start, limits, **options).run(depth)


def replay(members: int, start: str, steps: str) -> tuple[list[str], list[Broken]]:
    """Play these steps and tell them: each with what was sent and recorded; and the rules that were broken.

    Raises ValueError for a text that is not a step, or a step that cannot be done.
    """
    world, state = begin(start, members, EVERYTHING)
    lines: list[str] = []
    broken: list[Broken] = []
    for action in world.read(steps):
        line = world.tell(action)
        is_to_come = action.what == "return" and action.member in world.may_return(state)
        if state[action.member] <= OVER and not is_to_come:
            raise ValueError(f"{line}: that member does not run")
        if action.what in ("deliver", "lose"):
            if (action.sender, action.member) not in world.waiting(state):
                raise ValueError(f"{line}: nothing is on its way there")
            line += f": {short(str(world.content(state, action.sender, action.member)[0]))}"
        lines.append(line)
        state, step = world.act(state, action)
        if step is None:
            continue
        lines += [f"    {short(str(event))}" for event in step.events]
        lines += [f"    sends to {short(to)}: {short(str(world.states.items[item]))}" for _, to, item in step.sends]
        found = [*step.broken, *world.find_conflicts(state, action.member)]
        lines += [f"    BROKEN {what}: {short(story)}" for what, story in found]
        broken += found
    if not broken:
        verdict, then = Settling(world).find_broken(state)
        broken += verdict
        lines.append(f"then, in {len(then)} steps of a fair schedule:" if broken else "then all come to agree")
        lines += [f"    BROKEN {what}: {short(story)}" for what, story in broken]
    return lines, broken
