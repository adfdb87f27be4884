"""From any state, with no further faults: do the members that still run come to agree?

One fair schedule is played: messages arrive, crashed members are found to be gone, and when nothing is left the clocks of
all members go on together to the next deadline of any. It has converged when those that run are at rest in agreement, in one
cluster: sides that went apart find each other, and a member that ended itself is not waited for. A state that returns, or a
schedule that is too long, never converges.
"""

from __future__ import annotations

from phalanx.wire.join_events import JoinGivenUp
from phalanx_proof.sim.exploration.member import CRASHED, OVER
from phalanx_proof.sim.exploration.rules import Broken, ExplorationSeen
from phalanx_proof.sim.exploration.world import Action, ExploredWorld, WorldState

MOST_MOVES = 3_000
"""A schedule with more moves never ends."""


class Settling:
    """Plays fair schedules, and remembers from which states they end well."""

    def __init__(self, world: ExploredWorld) -> None:
        self._world = world
        self._verdicts: dict[WorldState, tuple[Broken, ...]] = {}
        """State on some schedule to what goes wrong from there on."""
        self.moves = 0

    def find_broken(self, state: WorldState) -> tuple[tuple[Broken, ...], list[Action]]:
        """Play a fair schedule from a state. Return what goes wrong in it or at its end, and its steps as far as they
        are new.
        """
        world = self._world
        actions: list[Action] = []
        at = self._stripped(world.heal(state))
        visited: dict[WorldState, None] = {}
        while (verdict := self._verdicts.get(at)) is None:
            if at in visited or len(visited) > MOST_MOVES:
                verdict = (("fair schedules end in agreement", "; ".join(self.unmet(at)) or "it never rests"),)
                break
            visited[at] = None
            if not world.waiting(at) and not self.unmet(at):
                verdict = ()
                break
            at, found = self._move(at, actions)
            if found:
                verdict = tuple(found)
                break
        self._verdicts.update(dict.fromkeys(visited, verdict))
        return verdict, actions

    def _move(self, state: WorldState, actions: list[Action]) -> tuple[WorldState, list[Broken]]:
        world = self._world
        self.moves += 1
        action = self._next(state)
        if action is None:
            return state, []
        if action.what == "time":
            due_in = world.states.due_in[state[action.member]] or 0
            state = self._wait(state, due_in) if due_in else state
        actions.append(action)
        after, step = world.act(state, action)
        found = [*step.broken] if step is not None else []
        gave_up = step is not None and any(isinstance(event, JoinGivenUp) for event in step.events)
        if gave_up and world.has_cluster(after):
            found.append(("who comes back is admitted", f"{world.members[action.member]} gave up"))
        return self._stripped(after), found + world.find_conflicts(after, action.member)

    def _next(self, state: WorldState) -> Action | None:
        world = self._world
        for sender, receiver in world.waiting(state):
            return Action("deliver", receiver, sender)
        for member in world.running(state):
            seen = world.states.seen[state[member]]
            for peer, name in enumerate(world.members):
                if seen is not None and state[peer] <= OVER and _expects(seen, name):
                    return Action("suspect", member, peer)
            if seen is not None and seen.leaving:
                return Action("release", member)
        for member in self._coming_back(state):
            return Action("return", member)
        due = [(world.states.due_in[state[member]], member) for member in world.running(state)]
        timed = [(due_in, member) for due_in, member in due if due_in is not None]
        return Action("time", min(timed)[1]) if timed else None

    def _wait(self, state: WorldState, ms: int) -> WorldState:
        states = self._world.states
        running = self._world.running(state)
        return tuple(states.wait(number, ms) if at in running else number for at, number in enumerate(state))

    def _stripped(self, state: WorldState) -> WorldState:
        """Return the state without used budgets: a fair schedule has none."""
        return (*state[:-1], state[-1] & self._world.without_budgets)

    def unmet(self, state: WorldState) -> list[str]:
        """List what is missing to agreement, in words."""
        world = self._world
        shown = {number: world.states.seen[state[number]] for number in world.running(state)}
        members = {seen.this: seen for seen in shown.values() if seen is not None}
        unmet = []
        views = set()
        for seen in members.values():
            if seen.view is None:
                unmet.append(f"{seen.this} has not joined")
                continue
            views.add(seen.view)
            if seen.wants_to_leave:
                unmet.append(f"{seen.this} has not left")
            if seen.is_claiming:
                unmet.append(f"{seen.this} claims")
            if seen.suspected:
                unmet.append(f"{seen.this} suspects {', '.join(seen.suspected)}")
            if seen.master != seen.view.members[0]:
                unmet.append(f"{seen.this} follows {seen.master} in {seen.view}")
            for other in seen.view.members:
                theirs = members.get(other)
                if theirs is None or theirs.view != seen.view:
                    unmet.append(f"{seen.this} has {seen.view}, {other} has {theirs.view if theirs else 'crashed'}")
        if len(views) > 1:
            unmet.append(f"there are {len(views)} clusters")
        unmet += [f"{world.members[number]} has not come back" for number in self._coming_back(state)]
        return unmet

    def _coming_back(self, state: WorldState) -> list[int]:
        """List who starts again: those that ended themselves in favour of others, and not those that crashed."""
        world = self._world
        return [number for number in world.may_return(state) if state[number - world.addresses] != CRASHED]


def _expects(seen: ExplorationSeen, name: str) -> bool:
    return seen.view is not None and name in seen.view.members and name not in seen.suspected
