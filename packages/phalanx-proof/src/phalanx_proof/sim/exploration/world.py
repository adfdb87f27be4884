"""All members and links of an exploration as one tuple of numbers, and what can happen next in it.

    (state of each member, content of each link, bits)

A link has one direction and keeps order; links know nothing of each other. A message to a member whose process has ended
vanishes, and members with it in their view can find that out at any time later. What such a member had sent arrives, or the
rest of it is lost at any point. Budgets bound what else goes wrong; they are part of the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from phalanx.common.config import NodeConfig
from phalanx.common.ids import Address, MemberId, is_member, member_id
from phalanx.machine.inputs import LinkLost, LinkRefused, LinkUp
from phalanx_proof.sim.exploration.member import ABSENT, CRASHED, MOST_MEMBERS, OVER, Item, MemberStates, MemberStep
from phalanx_proof.sim.exploration.rules import Broken, find_conflict

WorldState = tuple[int, ...]

NAMES = "ABCDEF"
SUPPORTED = range(2, MOST_MEMBERS + 1)
REFUSED = "connection refused"
ANOTHER = "another member listens there"


class ExplorationLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much can go wrong in one history, and how often time can pass."""

    crashes: int = 1
    breaks: int = 0
    """Links of a pair that break in both directions, with what is in them."""
    suspicions: int = 1
    """Suspicions of members that run. A crashed member can be suspected at any time."""
    times: int = 2
    """How often any member comes to its next deadline."""
    cuts: int = 0
    """Links that swallow, in one direction, all that is and will be in them."""
    leaves: int = 0
    """Members that are asked to leave in good order. They can go as soon as the master knows."""
    returns: int = 0
    """Addresses at which a new process starts after the first one has ended, and wants to join."""


class Action(NamedTuple):
    """One thing that happens. `sender` is -1 where only one member takes part."""

    what: str
    member: int
    sender: int = -1


BUDGET_OF = {"crash": 0, "break": 1, "suspect": 2, "time": 3, "sleep": 3, "cut": 4, "leave": 5, "return": 6}
"""Action to the budget that it is taken from. Suspicion of a crashed member is free."""
BUDGET_BITS = 4


OF_TWO = ("deliver", "lose", "suspect", "break", "cut")


def explored_config(count: int, *, is_ring: bool = False) -> NodeConfig:
    """Return settings under which one refused connection makes a suspicion, and nothing is published without a reason.

    Silence is judged by a fixed time: the rhythm of each member would tell states apart that differ in nothing else.
    """
    addresses = tuple(Address(f"{name}:5701") for name in NAMES[:count])
    return NodeConfig(
        seeds=addresses, partition_count=1, heartbeat_interval_ms=1_000, heartbeat_timeout_ms=6_000,
        failure_detector="deadline", connection_grace_ms=0, retry_interval_ms=1_000, merge_interval_ms=1_000,
        claim_timeout_ms=4_000, publish_interval_ms=10**9, former_members_ms=10**9,
        ring_above_members=2 if is_ring else 0, ring_neighbours=1,
    )  # fmt: skip


class ExploredWorld:
    """The rules of movement. It holds no state, only what it has worked out before."""

    def __init__(self, count: int, limits: ExplorationLimits, *, is_ring: bool = False) -> None:
        """`is_ring`: members watch one neighbour each, as in large clusters; four and more do."""
        self.addresses = count
        second = NAMES[:count].lower() if limits.returns else ""
        self.names = NAMES[:count] + second
        """One letter for each member; a small one for a member that comes back at an address."""
        self.count = count = len(self.names)
        self.members: tuple[MemberId, ...] = tuple(
            member_id(Address(f"{name.upper()}:5701"), f"{name.lower()}{1 if name.isupper() else 2}")
            for name in self.names
        )
        self.states = MemberStates(self.members, explored_config(self.addresses, is_ring=is_ring))
        self.queues: list[tuple[int, ...]] = [()]
        """What a link holds, by number: items, first the next to arrive."""
        self._queue_numbers: dict[tuple[int, ...], int] = {(): 0}
        self._appended: dict[tuple[int, int], int] = {}
        self._pairs_in_order: set[tuple[int, int]] = set()
        """Pairs of members' states with no conflict between them."""
        self._budgets = (limits.crashes, limits.breaks, limits.suspicions, limits.times, limits.cuts, limits.leaves,
                         limits.returns)  # fmt: skip
        self._budget_shift = 2 * count * count
        self.without_budgets = (1 << self._budget_shift) - 1
        self._bits_at = count + count * count
        self._lost = [self.states.item(LinkLost(member)) for member in self.members]
        self._up = [self.states.item(LinkUp(member)) for member in self.members]
        self._refused = [self.states.item(LinkRefused(member, REFUSED)) for member in self.members]

    def empty(self) -> WorldState:
        """Return the state in which nobody has started."""
        fresh = tuple(self.states.new(number) for number in range(self.addresses))
        absent = (ABSENT,) * (self.count - self.addresses)
        return fresh + absent + (0,) * (self.count * self.count) + (0,)

    def started(self, state: WorldState, member: int) -> tuple[WorldState, MemberStep]:
        """Return the state after a member's process has started, and what the member did."""
        return self._stepped(list(state), member, self.states.start(state[member]))

    # --- steps in words --------------------------------------------------------------------------------------------

    def tell(self, action: Action) -> str:
        """Return an action in words: `crash A`, `deliver A>B`."""
        member = self.names[action.member]
        return f"{action.what} {member}" if action.sender < 0 else f"{action.what} {self.names[action.sender]}>{member}"

    def read(self, steps: str) -> list[Action]:
        """Parse what `tell` says, in a list with commas. Raises ValueError for a text that is not an action."""
        actions = []
        for part in filter(None, (part.strip() for part in steps.split(","))):
            what, _, who = part.partition(" ")
            one, arrow, other = who.partition(">")
            is_known = what in OF_TWO or what == "release" or what in BUDGET_OF
            if (
                not is_known
                or len(one) != 1
                or len(other) != (what in OF_TWO)
                or not set(one + other) <= set(self.names)
            ):
                raise ValueError(f"{part!r} is not a step: expected, for example, 'deliver A>B' or 'crash A'")
            actions.append(Action(what, self.names.index(other or one), self.names.index(one) if arrow else -1))
        return actions

    # --- looking ---------------------------------------------------------------------------------------------------

    def running(self, state: WorldState) -> list[int]:
        return [number for number in range(self.count) if state[number] > OVER]

    def waiting(self, state: WorldState) -> list[tuple[int, int]]:
        """List the links with something in them: sender, receiver."""
        count = self.count
        return [divmod(at, count) for at, queue in enumerate(state[count : self._bits_at]) if queue]

    def content(self, state: WorldState, sender: int, receiver: int) -> list[Item]:
        return [self.states.items[item] for item in self.queues[state[self._link(sender, receiver)]]]

    def is_left(self, state: WorldState, what: str) -> bool:
        """Return whether the budget for this is not used up."""
        budget = BUDGET_OF[what]
        used = state[-1] >> (self._budget_shift + BUDGET_BITS * budget) & ((1 << BUDGET_BITS) - 1)
        return used < self._budgets[budget]

    def find_conflicts(self, state: WorldState, changed: int) -> list[Broken]:
        """List what is wrong between one member and the others."""
        found: list[Broken] = []
        one = state[changed]
        if CRASHED < one < ABSENT and self._is_lost(state):
            return [("somebody goes on", "all ended themselves, in favour of each other")]
        for number in range(self.count):
            other = state[number]
            if number == changed or one <= OVER or other <= OVER or (one, other) in self._pairs_in_order:
                continue
            mine, theirs = self.states.seen[one], self.states.seen[other]
            conflict = find_conflict(mine, theirs) if mine is not None and theirs is not None else None
            if conflict:
                found.append(conflict)
            else:
                self._pairs_in_order |= {(one, other), (other, one)}
        return found

    def has_cluster(self, state: WorldState) -> bool:
        """Return whether anybody has a view."""
        seen = [self.states.seen[state[number]] for number in self.running(state)]
        return any(each is not None and each.view is not None for each in seen)

    def _is_lost(self, state: WorldState) -> bool:
        """Return whether nobody has a view any more, though nobody crashed in whose favour others ended."""
        if self.has_cluster(state):
            return False
        for number in range(self.count):
            followed = set()
            while CRASHED < state[number] < ABSENT and number not in followed:
                followed.add(number)
                number = state[number] - 1
            if followed and state[number] == CRASHED:
                return False
        return True

    def may_return(self, state: WorldState) -> list[int]:
        """List who can start at the address of a first member that is no more."""
        first = range(self.count - self.addresses)
        return [self.addresses + n for n in first if state[n] < ABSENT and state[self.addresses + n] == ABSENT]

    # --- what can happen -------------------------------------------------------------------------------------------

    def enabled(self, state: WorldState) -> Iterator[Action]:
        """Yield all that can happen next."""
        running = self.running(state)
        for sender, receiver in self.waiting(state):
            yield Action("deliver", receiver, sender)
            if state[sender] <= OVER:
                yield Action("lose", receiver, sender)
        for member in running:
            yield from self._suspicions(state, member)
            yield from self._departures(state, member)
        if self.is_left(state, "time"):
            for member in running:
                if self.states.due_in[state[member]] is not None:
                    yield Action("time", member)
                    seen = self.states.seen[state[member]]
                    if seen is not None and seen.is_claiming:
                        yield Action("sleep", member)
        if self.is_left(state, "return"):
            for member in self.may_return(state):
                yield Action("return", member)
        if len(running) > 1:
            yield from self._faults(state, running)

    def _suspicions(self, state: WorldState, member: int) -> Iterator[Action]:
        seen = self.states.seen[state[member]]
        view = seen.view if seen is not None else None
        if seen is None or view is None:
            return
        is_left = self.is_left(state, "suspect")
        for peer, name in enumerate(self.members):
            is_news = peer != member and name in view.members and name not in seen.suspected
            if is_news and (is_left or state[peer] <= OVER):
                yield Action("suspect", member, peer)

    def _departures(self, state: WorldState, member: int) -> Iterator[Action]:
        seen = self.states.seen[state[member]]
        if seen is not None and seen.leaving:
            yield Action("release", member)
        if seen is not None and seen.view is not None and not seen.wants_to_leave and self.is_left(state, "leave"):
            yield Action("leave", member)

    def _faults(self, state: WorldState, running: list[int]) -> Iterator[Action]:
        if self.is_left(state, "crash"):
            for member in running:
                yield Action("crash", member)
        if self.is_left(state, "break"):
            for one in running:
                for other in running:
                    if one < other:
                        yield Action("break", other, one)
        if self.is_left(state, "cut"):
            for one in running:
                for other in running:
                    if one != other and not state[-1] & self._cut_bit(one, other):
                        yield Action("cut", other, one)

    # --- moving ----------------------------------------------------------------------------------------------------

    def act(self, state: WorldState, action: Action) -> tuple[WorldState, MemberStep | None]:
        """Return the state after an action, and what the member in it did, if it did anything."""
        what, member, sender = action
        after = list(state)
        if what == "deliver":
            link = self._link(sender, member)
            queue = self.queues[after[link]]
            after[link] = self._queue_number(queue[1:])
            return self._stepped(after, member, self.states.receive(state[member], sender, queue[0]))
        if what == "lose":
            after[self._link(sender, member)] = 0
            return tuple(after), None
        if what == "release":
            return self._stepped(after, member, self.states.complete_leaving(state[member]))
        if what != "suspect" or state[sender] > OVER:
            after[-1] += 1 << (self._budget_shift + BUDGET_BITS * BUDGET_OF[what])
        if what == "suspect":
            if state[sender] > OVER:
                after[-1] |= self._closed_bit(member, sender)
            return self._stepped(after, member, self.states.receive(state[member], sender, self._refused[sender]))
        if what == "time" or what == "sleep":
            ms = self.states.due_now(state[member]) if what == "time" else self.states.config.claim_timeout_ms
            return self._stepped(after, member, self.states.pass_time(state[member], ms))
        if what == "leave":
            return self._stepped(after, member, self.states.leave(state[member]))
        if what == "return":
            # What its predecessor has sent is void when the new connections open.
            self._drop(after, member - self.addresses)
            return self._stepped(after, member, self.states.start(self.states.new(member)))
        if what == "crash":
            after[member] = CRASHED
            self._drop_inbound(after, member)
        elif what == "break":
            self._break(after, member, sender)
        else:
            after[self._link(sender, member)] = 0
            after[-1] |= self._cut_bit(sender, member)
        return tuple(after), None

    def heal(self, state: WorldState) -> WorldState:
        """Break the connections that were cut: then they can be opened again."""
        after = list(state)
        for one in range(self.count):
            for other in range(self.count):
                if after[-1] & self._cut_bit(one, other):
                    after[-1] &= ~self._cut_bit(one, other)
                    if state[one] > OVER and state[other] > OVER:
                        self._break(after, one, other)
        return tuple(after)

    def _stepped(self, after: list[int], member: int, step: MemberStep) -> tuple[WorldState, MemberStep]:
        after[member] = step.state
        for number, target, item in step.sends:
            receiver = number
            if after[receiver] <= OVER and not is_member(target):
                receiver = self._who_listens(after, receiver)
            if after[receiver] <= OVER:
                self._send_to_the_dead(after, member, receiver, target)
            elif not after[-1] & self._cut_bit(member, receiver):
                closed = self._closed_bit(member, receiver)
                if after[-1] & closed and not after[-1] & self._cut_bit(receiver, member):
                    after[-1] &= ~closed
                    self._append(after, receiver, member, self._up[receiver])
                self._append(after, member, receiver, item)
        if step.state <= OVER:
            self._drop_inbound(after, member)
        return tuple(after), step

    def _send_to_the_dead(self, after: list[int], member: int, receiver: int, target: str) -> None:
        """Refuse a connection to a process that has ended. A member of the view is suspected by an action of its
        own; nobody else would tell of any other.
        """
        seen = self.states.seen[after[member]]
        if seen is None or (seen.view is not None and target in seen.view.members):
            return
        is_another = after[self._who_listens(after, receiver)] > OVER
        refused = self.states.item(LinkRefused(Address(target), ANOTHER if is_another else REFUSED, final=is_another))
        if refused not in self.queues[after[self._link(receiver, member)]]:
            self._append(after, receiver, member, refused)

    def _who_listens(self, after: list[int], member: int) -> int:
        """Return the member that runs at an address, or the first one that did."""
        first = member % self.addresses
        second = first + self.addresses
        return second if second < self.count and after[second] > OVER else first

    def _break(self, after: list[int], one: int, other: int) -> None:
        for sender, receiver in ((one, other), (other, one)):
            after[self._link(sender, receiver)] = self._queue_number((self._lost[sender],))
            after[-1] |= self._closed_bit(sender, receiver)

    def _drop_inbound(self, after: list[int], member: int) -> None:
        for sender in range(self.count):
            after[self._link(sender, member)] = 0
            after[-1] &= ~(self._closed_bit(sender, member) | self._closed_bit(member, sender))

    def _drop(self, after: list[int], member: int) -> None:
        for receiver in range(self.count):
            after[self._link(member, receiver)] = 0

    def _append(self, after: list[int], sender: int, receiver: int, item: int) -> None:
        link = self._link(sender, receiver)
        number = self._appended.get((after[link], item))
        if number is None:
            number = self._appended[after[link], item] = self._queue_number((*self.queues[after[link]], item))
        after[link] = number

    def _queue_number(self, queue: tuple[int, ...]) -> int:
        number = self._queue_numbers.get(queue)
        if number is None:
            number = self._queue_numbers[queue] = len(self.queues)
            self.queues.append(queue)
        return number

    def _link(self, sender: int, receiver: int) -> int:
        return self.count + sender * self.count + receiver

    def _closed_bit(self, sender: int, receiver: int) -> int:
        """Return the bit that is set while a connection must be opened again by the next message."""
        return 1 << (sender * self.count + receiver)

    def _cut_bit(self, sender: int, receiver: int) -> int:
        return 1 << (self.count * self.count + sender * self.count + receiver)
