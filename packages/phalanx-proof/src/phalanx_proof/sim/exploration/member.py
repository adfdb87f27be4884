"""One member of an exploration: the membership machine behind one door, with its own clock and what it is judged by.

Members meet through messages alone, so each has a clock of its own and a message can take any time. What a member does
is a function of its variables and the input; `MemberStates` numbers the states by their canonical form, keeps a frozen
copy of each, and works each step out once. An exploration then moves numbers, and copies a member only where it does
something that no member in that state has done before.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable

import msgspec

from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId, Millis, Target, address_of
from phalanx.common.invariant import invariant
from phalanx.common.versions import this_release
from phalanx.machine.effects import Finished, Record, Send
from phalanx.machine.facts import IncarnationOver
from phalanx.machine.inputs import LinkLost, LinkRefused, LinkUp
from phalanx.machine.local_context import LocalContext
from phalanx.machine.outbox import Outbox
from phalanx.membership.service import MembershipService
from phalanx.wire import messages as m
from phalanx.wire.event import Event
from phalanx_proof.sim.exploration.canonical_form import CLOCK_START, form_of
from phalanx_proof.sim.exploration.rules import ExplorationSeen, Ghost, find_broken

Item = m.Message | LinkLost | LinkRefused | LinkUp
"""What comes along a link."""

MOST_MEMBERS = 6
CRASHED = 0
"""State of a member that has crashed, or has ended in favour of nobody."""
ABSENT = OVER = 2 * MOST_MEMBERS + 1
"""State n from 1 to below this: the member ended its incarnation in favour of the n-th one. This: it has not come yet.
Greater: it runs."""


class ExploredMember:
    """The machine, its clock, and its part of the history that the rules look at."""

    def __init__(self, this: MemberId, config: NodeConfig) -> None:
        self.now: Millis = CLOCK_START
        self.ghost = Ghost()
        self._out = Outbox(this)
        self.service = MembershipService(LocalContext(this, config, this_release(), self._out))

    def form(self) -> Hashable:
        return form_of((self.service, self.ghost), self.now)

    def seen(self) -> ExplorationSeen:
        service = self.service
        return ExplorationSeen(
            service.this,
            service.view,
            service.master,
            service.is_master,
            service.is_claiming,
            tuple(sorted(service.suspicions.suspected)),
            tuple(sorted(service.duties.leaving)) if service.is_master else (),
            service.wishes.to_leave,
        )

    def due_in(self) -> Millis | None:
        """Return how long until time alone will matter; None: never."""
        deadline = self._next_deadline()
        return None if deadline is None else max(0, deadline - self.now)

    def _next_deadline(self) -> Millis | None:
        if (review_at := self.service.review_at()) is not None:
            self.service.suspicions.note_deadline(review_at)
        return self.service.next_deadline()

    def take(self) -> tuple[list[tuple[Target, Item]], list[Event], Finished | None]:
        """Return the effects so far: what is sent, what is recorded, and how the incarnation ended, if it did."""
        effects = self._out.take()
        sends: list[tuple[Target, Item]] = [(e.to, e.message) for e in effects if isinstance(e, Send)]
        events: list[Event] = [effect.event for effect in effects if isinstance(effect, Record)]
        return sends, events, next((effect for effect in effects if isinstance(effect, Finished)), None)

    # --- inputs ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.service.start(self.now)
        self._follow_up()

    def receive(self, sender: MemberId, item: Item) -> None:
        if isinstance(item, LinkLost | LinkRefused | LinkUp):
            self.service.on_link(item, self.now)
        else:
            self._dispatch(sender, item)
        self._follow_up()

    def pass_time(self, ms: Millis) -> None:
        """Advance the clock and tell the machine. A deadline that stays due is due again a moment later."""
        self.now += ms
        self.service.on_time(self.now)
        self._follow_up()
        deadline = self._next_deadline()
        if deadline is not None and deadline <= self.now:
            self.now += 1

    def leave(self) -> None:
        """Ask this member to leave."""
        self.service.leave(self.now)
        self._follow_up()

    def complete_leaving(self) -> None:
        """Tell the master that all who want to leave have handed over what they held."""
        self.service.administration.complete_leaving(sorted(self.service.duties.leaving), self.now)
        self._follow_up()

    def _follow_up(self) -> None:
        """Let the machine follow its own facts, and take what it sent to itself. No other machine is here."""
        out = self._out
        while out.facts or out.loopback:
            if out.facts:
                facts = dict(out.facts)
                out.facts.clear()
                for each in self.service.interests():
                    if IncarnationOver not in facts or each.takes(IncarnationOver):
                        each.offer(facts, self.now)
            else:
                self._dispatch(self.service.this, out.loopback.popleft())

    def _dispatch(self, sender: MemberId, message: m.Message) -> None:
        handlers = dict(self.service.routes())
        invariant(type(message) in handlers, "only messages about membership are explored", message=message)
        handlers[type(message)](sender, message, self.now)


class MemberStep(msgspec.Struct, frozen=True):
    """What a member did with one input."""

    state: int
    """Its new state."""
    sends: tuple[tuple[int, Target, int], ...]
    """Receiver's number, its name as it was used, and the number of the message."""
    broken: tuple[tuple[str, str], ...]
    """Rules that this step broke, and how."""
    events: tuple[Event, ...]


class MemberStates:
    """All states that members were found in, and all steps between them."""

    def __init__(self, members: tuple[MemberId, ...], config: NodeConfig) -> None:
        self.members = members
        self.config = config
        self.seen: list[ExplorationSeen | None] = [None] * (OVER + 1)
        """What each state looks like from outside."""
        self.due_in: list[Millis | None] = [None] * (OVER + 1)
        self.items: list[Item] = []
        self._frozen: list[bytes] = [b""] * (OVER + 1)
        self._numbers: dict[Hashable, int] = {}
        self._item_numbers: dict[Item, int] = {}
        self._steps: dict[tuple[int, int, int], MemberStep] = {}
        self._by_name: dict[str, int] = {}
        """Member to its number; address to the number of the first member there."""
        for number, member in enumerate(members):
            self._by_name[member] = number
            self._by_name.setdefault(address_of(member), number)

    def __len__(self) -> int:
        return len(self.seen)

    @property
    def worked_out(self) -> int:
        """How many steps were worked out; all others were known."""
        return len(self._steps)

    def new(self, number: int) -> int:
        """Return the state of a member that has not started."""
        return self._number_of(ExploredMember(self.members[number], self.config))

    def item(self, item: Item) -> int:
        """Return the number of a message, or of news about a link."""
        number = self._item_numbers.get(item)
        if number is None:
            number = self._item_numbers[item] = len(self.items)
            self.items.append(item)
        return number

    def start(self, state: int) -> MemberStep:
        return self._step(state, -1, 0, ExploredMember.start)

    def receive(self, state: int, sender: int, item: int) -> MemberStep:
        step = self._steps.get((state, sender, item))
        if step is not None:
            return step
        return self._step(
            state, sender, item, lambda member: member.receive(self.members[sender], self.items[item]), self.items[item]
        )

    def pass_time(self, state: int, ms: Millis) -> MemberStep:
        return self._step(state, -2, ms, lambda member: member.pass_time(ms))

    def leave(self, state: int) -> MemberStep:
        return self._step(state, -4, 0, ExploredMember.leave)

    def complete_leaving(self, state: int) -> MemberStep:
        return self._step(state, -5, 0, ExploredMember.complete_leaving)

    def wait(self, state: int, ms: Millis) -> int:
        """Advance the clock without telling the machine."""

        def wait(member: ExploredMember) -> None:
            member.now += ms

        return self._step(state, -3, ms, wait).state

    def due_now(self, state: int) -> Millis:
        """Return how long `pass_time` must wait to come to the next deadline."""
        due_in = self.due_in[state]
        invariant(due_in is not None, "this member waits for some time", state=self.seen[state])
        return due_in or 0

    def thaw(self, state: int) -> ExploredMember:
        """Return a copy of a member in this state."""
        member = pickle.loads(self._frozen[state])
        invariant(isinstance(member, ExploredMember), "a state is a member")
        return member  # type: ignore[no-any-return]

    def _step(
        self, state: int, kind: int, detail: int, act: Callable[[ExploredMember], None], item: Item | None = None
    ) -> MemberStep:
        step = self._steps.get((state, kind, detail))
        if step is None:
            step = self._steps[state, kind, detail] = self._work_out(state, kind, act, item)
        return step

    def _work_out(self, state: int, kind: int, act: Callable[[ExploredMember], None], item: Item | None) -> MemberStep:
        member = self.thaw(state)
        before = member.seen()
        try:
            act(member)
            member.service.validate()
        except Exception as error:  # whatever it is, a member must not fail
            sends, events, _ = member.take()
            return MemberStep(
                CRASHED, (), (("a member never fails", f"{type(error).__name__}: {error}"),), tuple(events)
            )
        sends, events, end = member.take()
        sender = self.members[kind] if kind >= 0 else None
        broken = find_broken(before, member.seen(), sender, item, sends, events, member.ghost)
        numbered = tuple((self._by_name[to], to, self.item(message)) for to, message in sends)
        state = self._over(end) if end is not None else self._number_of(member)
        return MemberStep(state, numbered, tuple(broken), tuple(events))

    def _over(self, end: Finished) -> int:
        """Return the state of a member that has ended. One that never joined, or was asked to leave, ends in favour of
        nobody.
        """
        return 1 + self._by_name[end.rejoin[0]] if end.rejoin else CRASHED

    def _number_of(self, member: ExploredMember) -> int:
        form = member.form()
        number = self._numbers.get(form)
        if number is None:
            number = self._numbers[form] = len(self.seen)
            self.seen.append(member.seen())
            self.due_in.append(member.due_in())
            self._frozen.append(pickle.dumps(member, pickle.HIGHEST_PROTOCOL))
        return number
