"""Where an exploration begins: states that real members reached by joining each other, and what went wrong since.

Each is built by playing, so no member is ever in a state that it cannot reach.
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.common.invariant import invariant
from phalanx_proof.sim.exploration.member import OVER
from phalanx_proof.sim.exploration.rules import ExplorationSeen
from phalanx_proof.sim.exploration.world import Action, ExplorationLimits, ExploredWorld, WorldState

Start = Callable[[ExploredWorld], WorldState]


class _Play:
    """Plays a schedule by hand; fails where a rule is broken."""

    def __init__(self, world: ExploredWorld) -> None:
        self.world = world
        self.state = world.empty()

    def start(self, member: int) -> None:
        world = self.world
        self.state, _ = world.started(self.state, member)

    def act(self, what: str, member: int, sender: int = -1) -> None:
        self.state, step = self.world.act(self.state, Action(what, member, sender))
        invariant(step is None or not step.broken, "a start breaks no rule", step=step)

    def settle(self, skip: tuple[tuple[int, int], ...] = ()) -> None:
        """Deliver all messages, except on some links."""
        while waiting := [link for link in self.world.waiting(self.state) if link not in skip]:
            self.act("deliver", waiting[0][1], waiting[0][0])

    def seen(self, member: int) -> ExplorationSeen:
        seen = self.world.states.seen[self.state[member]]
        invariant(seen is not None and self.state[member] > OVER, "the member runs", member=member)
        return seen  # type: ignore[return-value]  # held by the invariant

    def join(self, count: int) -> None:
        """Let members join one after another and come to rest."""
        for member in range(count):
            self.start(member)
            self.settle()
            while self.seen(member).view is None:
                self.act("time", member)
                self.settle()

    def done(self) -> WorldState:
        """Return the state, with no budget used."""
        return (*self.state[:-1], self.state[-1] & self.world.without_budgets)


def agreed(world: ExploredWorld) -> WorldState:
    """Return the state in which all have joined and have the same view; nothing is on its way."""
    play = _Play(world)
    play.join(world.addresses)
    return play.done()


def behind(world: ExploredWorld) -> WorldState:
    """Return `agreed`, but the last but one never got the list that admitted the last."""
    play = _Play(world)
    last, missing = world.addresses - 1, world.addresses - 2
    play.join(last)
    play.start(last)
    play.settle(skip=((0, missing),))
    play.act("cut", missing, 0)
    while play.seen(last).view is None:
        play.act("time", 0)
        play.settle()
    cut = play.done()
    return (*cut[:-1], 0)


def suspecting(world: ExploredWorld) -> WorldState:
    """Return `agreed`, but the second suspects the third."""
    play = _Play(world)
    play.join(world.addresses)
    play.act("suspect", 1, 2)
    play.settle()
    return play.done()


def removal(world: ExploredWorld) -> WorldState:
    """Return the state after the master removed the last member, which had crashed, and
    crashed itself: its list is on the way to all.
    """
    play = _Play(world)
    play.join(world.addresses)
    last = world.addresses - 1
    play.act("crash", last)
    play.act("suspect", 0, last)
    play.act("crash", 0)
    return play.done()


def admission(world: ExploredWorld) -> WorldState:
    """Return the state after the master admitted the last member, and crashed: its list is on the way to all others."""
    play = _Play(world)
    last = world.addresses - 1
    play.join(last)
    play.start(last)
    while len((play.seen(0).view or ()).members) < world.addresses:  # type: ignore[union-attr]  # it has joined
        play.act("deliver", 0, last) if (last, 0) in world.waiting(play.state) else play.act("time", last)
    play.act("crash", 0)
    return play.done()


STARTS: dict[str, Start] = {
    "agreed": agreed,
    "behind": behind,
    "suspecting": suspecting,
    "removal": removal,
    "admission": admission,
    "ring": agreed,
    "ring-removal": removal,
}


def begin(start: str, members: int, limits: ExplorationLimits) -> tuple[ExploredWorld, WorldState]:
    """Return a world and its initial state. Where the name of the start says so, members watch neighbours on a ring."""
    world = ExploredWorld(members, limits, is_ring=start.startswith("ring"))
    return world, STARTS[start](world)
