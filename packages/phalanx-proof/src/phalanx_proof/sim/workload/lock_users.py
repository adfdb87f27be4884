"""Programs that use locks and semaphores: they follow the plans of the real clients, with the clock of their host.

A user acquires, writes with its token a few times, renews its lease, and releases; some hold too long, and some forget
what they hold, as a program that hangs would.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from phalanx.codec.hashing import partition_of
from phalanx.common.errors import PhalanxError
from phalanx.common.hidden_maps import has_locks
from phalanx.common.ids import MemberId, Millis
from phalanx.common.invariant import invariant
from phalanx.grid.locking.lock_keeper import state_of
from phalanx.machine.inputs import Call
from phalanx.maps.call_plans import CallOwners, CallPlan
from phalanx.maps.locks import Holding, Releasable, acquire_plan, lock_terms, release_plan, renew_plan
from phalanx.wire import messages as m
from phalanx_proof.sim.checkers.evidence import Evidence
from phalanx_proof.sim.checkers.lock_checker import LockChecker
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.history.lock_history import FencedWrite, Grant, LockAnswer
from phalanx_proof.sim.options import LOCKED, HistoryOptions
from phalanx_proof.sim.workload.calls import TEXT, Workload
from phalanx_proof.sim.workload.program import CallingProgram

NAMES = 3
PERMITS = 2
USERS = 2
"""On each host."""
LEASES_S = (0.2, 0.5, 1.5)
WAITS_S = (0.0, 0.3, 2.0, None)
PAUSES_MS = 400
Then = Callable[[Any], None]


def _unknown(number: int) -> int:
    """Return the lowest number of a call under way as if nobody knew it: all calls of a history can be."""
    return 0


class User:
    """One task or thread of the program on a host."""

    def __init__(self, host: Host, member: MemberId, number: int) -> None:
        self.host = host
        self.member = member
        self.number = number
        self.acquisitions = 0
        self.holding: Holding | None = None
        self.grant: Grant | None = None

    def __repr__(self) -> str:
        return f"User({self.number} on {self.member})"


class LockUsers(CallingProgram[tuple[User, CallPlan[Any], Then]]):
    """All users of locks in one history. A call is remembered by its user, the plan that made it, and what is done when that ends."""

    stream = "locks"

    def __init__(self, options: HistoryOptions, workload: Workload, evidence: Evidence) -> None:
        super().__init__(options, workload, evidence)
        self._grants: list[Grant] = []
        self._last: list[Grant] = []
        """What was granted at rest."""
        self._writes: list[FencedWrite] = []
        self._refused = 0
        """How often a token was refused, or a lock lost."""
        self._users: dict[tuple[int, int], User] = {}
        """Host and number to the user that runs there, or ran there last."""
        self._is_last = False
        """Whether all that is asked for from now on is kept."""

    def _start(self) -> None:
        for host in self._world.hosts:
            for number in range(USERS):
                self._later(host, self._rng.randrange(1_000), partial(self._enter, host, number))

    def unmet(self) -> list[str]:
        if self._is_last:
            return []
        grids = [host.running_node.grid for host in self._world.hosts if host.has_joined]
        held = [
            f"{state.holders} hold lock {key!r} of partition {owned.number}"
            for grid in grids
            for owned in grid.ownership.all_owned()
            for name, store in owned.replica.maps.items()
            if has_locks(name)
            for key in store.entries
            if (state := state_of(owned.replica, name, key, grid.ownership.table_installed_at)).holders
        ]
        return held + [f"{grid.locks} is busy" for grid in grids if grid.locks.is_busy]

    def ask_last(self) -> None:
        """Acquire every lock once more, at one member after another, and keep it."""
        self._is_last = True
        hosts = [host for host in self._world.hosts if host.has_joined]
        for index in range(NAMES):
            user = User(hosts[index % len(hosts)], hosts[index % len(hosts)].running_node.this, USERS)
            self._acquire(user, index, is_semaphore=False, lease_s=60.0, wait_s=0.0, into=self._last)

    @property
    def is_waiting(self) -> bool:
        return bool(self._pending)

    # --- one user --------------------------------------------------------------------------------------------------

    def _enter(self, host: Host, number: int) -> None:
        """Let a user begin, as soon as its host has a member."""
        before = self._users.get((host.number, number))
        if not self._runs or (before is not None and self._lives(before)):
            return
        if host.node is None or host.node.membership.view is None:
            self._later(host, 200, partial(self._enter, host, number))
        else:
            user = self._users[host.number, number] = User(host, host.node.this, number)
            self._choose(user)

    def _lives(self, user: User) -> bool:
        return user.host.member == user.member

    def _choose(self, user: User) -> None:
        """Acquire something."""
        if not self._runs:
            return
        if not self._lives(user):
            self._enter(user.host, user.number)
            return
        rng = self._rng
        is_semaphore = rng.random() < 0.25
        index, lease_s, wait_s = rng.randrange(NAMES), rng.choice(LEASES_S), rng.choice(WAITS_S)
        self._acquire(user, index, is_semaphore=is_semaphore, lease_s=lease_s, wait_s=wait_s, into=self._grants)

    def _acquire(
        self, user: User, index: int, *, is_semaphore: bool, lease_s: float, wait_s: float | None, into: list[Grant]
    ) -> None:
        key = TEXT + b"L%d" % index
        user.acquisitions += 1
        holder = f"{user.member}/{user.number}/{user.acquisitions}"
        permits = PERMITS if is_semaphore else 0
        terms = lock_terms(LOCKED, key, key.hex(), lease_s, wait_s, permits=permits)
        asked_at = self._world.now
        plan = acquire_plan(terms, holder, wait_s, self._numbers(user), user, self._clock(user))

        def on_end(outcome: Any) -> None:
            if isinstance(outcome, Holding):
                grant = Grant(
                    (key, is_semaphore), permits or 1, outcome.token, user.host.number, asked_at, self._world.now
                )
                grant.replier = self._replier
                into.append(grant)
                user.holding, user.grant = outcome, grant
                self._note_lease(user)
                if into is self._grants:
                    self._hold(user)
            elif isinstance(outcome, PhalanxError):
                # As the clients do: it can be granted to nobody.
                self._go(user, release_plan(Releasable(terms, holder), self._numbers(user), _unknown), lambda _: None)
                self._rest(user)
            else:
                self._rest(user)

        self._go(user, plan, on_end)

    def _rest(self, user: User) -> None:
        self._later(user.host, self._rng.randrange(PAUSES_MS), lambda: self._choose(user))

    def _hold(self, user: User) -> None:
        """Use what was granted: write now and then, renew, release."""
        rng, holding = self._rng, user.holding
        if holding is None:
            return
        self._renew_in_time(user, holding)
        writes = rng.randrange(3)
        if writes:
            holding.use_token()  # before the release, which can come first
        for _ in range(writes):
            self._later(user.host, rng.randrange(PAUSES_MS), lambda: self._write(user, holding))
        if rng.random() < 0.15:
            # It hangs: nobody renews or releases anything. Its last write can come late.
            self._forget(user)
            self._later(user.host, rng.randrange(3 * PAUSES_MS), lambda: self._write(user, holding))
            self._rest(user)
        else:
            self._later(user.host, rng.choice((1, PAUSES_MS, 2_000)), lambda: self._release(user, holding))

    def _forget(self, user: User) -> None:
        user.holding = user.grant = None

    def _renew_in_time(self, user: User, holding: Holding) -> None:
        shown = int(holding.renew_at * 1_000) + 1
        at = user.host.when(shown)

        def renew() -> None:
            if user.holding is not holding or not self._runs or not self._lives(user):
                return
            left_s = holding.ends_at - self._clock(user)()
            if holding.is_held(self._clock(user)()):
                self._go(user, renew_plan([holding], left_s, self._numbers(user), self._clock(user)), renewed)
            else:
                self._refused += 1

        def renewed(_: Any) -> None:
            if user.holding is holding:
                self._note_lease(user)
                self._renew_in_time(user, holding)

        self._later(user.host, at - self._world.now, renew)

    def _note_lease(self, user: User) -> None:
        """Note until when a holder takes the lock for its own, in true time."""
        if user.holding is not None and user.grant is not None:
            ends_at = user.host.when(int(user.holding.ends_at * 1_000))
            user.grant.ends_at = min(ends_at, self._world.now) if user.holding.is_lost else ends_at

    def _write(self, user: User, holding: Holding) -> None:
        if not self._lives(user) or holding.terms.permits:
            return
        key, began_at = holding.terms.key, self._world.now
        number = self._workload.next_number()
        value = TEXT + b"w%d" % number
        request = m.WriteFenced(
            number, LOCKED, key, value, 0, holding.token, 0, self._workload.open_from(user.member, number)
        )

        def on_end(reply: Any) -> None:
            if isinstance(reply, m.ValueReply) and self._replier is not None:
                self._writes.append(FencedWrite(key, holding.token, began_at, self._world.now, self._replier))
            else:
                self._refused += 1

        self._go(user, _one_call(request), on_end)

    def _release(self, user: User, holding: Holding) -> None:
        if user.holding is not holding or not self._lives(user):
            return
        if user.grant is not None:
            user.grant.over_at = self._world.now
        self._forget(user)
        self._go(user, release_plan(holding.to_release(), self._numbers(user), _unknown), lambda _: None)
        self._rest(user)

    # --- calls -----------------------------------------------------------------------------------------------------

    def _clock(self, user: User) -> Callable[[], float]:
        return lambda: user.host.clock(self._world.now) / 1_000

    def _numbers(self, user: User) -> _Numbers:
        return _Numbers(
            self._workload, self._options.partitions if user.host.table is None else user.host.table.partition_count
        )

    def _go(self, user: User, plan: CallPlan[Any], then: Then, outcome: Any = None) -> None:
        """Let a plan take its next step; hand its result, or its error, to `then`."""
        if not self._lives(user):
            plan.close()
            return
        try:
            step = plan.send(outcome)
        except StopIteration as end:
            then(end.value)
            return
        except PhalanxError as error:
            then(error)
            return
        invariant(isinstance(step, CallOwners), "calls of locks ask owners, and nobody else", step=step)
        ((partition, request),) = step.requests  # type: ignore[union-attr]  # it is one
        if partition < 0:
            partition = partition_of(request.key, self._numbers(user).partition_count)
        call = Call(partition, request, None, step.within_ms)  # type: ignore[union-attr]
        self._call(user.host, user.member, call, (user, plan, then))

    def on_answer(self, reply: m.Reply, replier: MemberId) -> None:
        """End a call: its program goes on in the next turn."""
        user, plan, then = self._end_call(reply.id)

        def go_on() -> None:
            self._replier = replier
            self._go(user, plan, then, [reply])
            self._replier = None

        self._later(user.host, 1, go_on)

    _replier: MemberId | None = None
    """Who gave the answer that is being handled."""

    def on_process_ended(self, member: MemberId) -> None:
        for user, plan, _ in self._end_calls(member):
            plan.close()
            self._later(user.host, 200, partial(self._enter, user.host, user.number))

    # --- at rest ---------------------------------------------------------------------------------------------------

    def judge(self, joined: list[Host], now: Millis) -> None:
        checker = LockChecker(self._evidence.findings, self._may_part)
        if not self._options.has_sides or self._options.lease_ms:
            checker.check(self._grants, self._writes)
        checker.check_last(self._last, self._grants)
        self._evidence.counts["excused losses of locks"] += checker.excused

    def _may_part(self, key: bytes, earlier: LockAnswer, later: LockAnswer) -> bool:
        """Return whether the owner that recorded the later need not know of the earlier: all replicas that had it can be gone,
        or the two are of clusters that were founded apart."""
        evidence = self._evidence
        if earlier.replier is None or later.replier is None:
            return False
        founder_of = evidence.majorities.founder_of
        if founder_of(earlier.replier) != founder_of(later.replier):
            return True
        if self._options.has_sides and evidence.is_partition_lost(key):
            return True
        since = earlier.answered_at - self._options.call_timeout_ms
        return evidence.may_be_lost(key, earlier.replier, since, later.answered_at)

    def counts(self) -> dict[str, int]:
        return {
            "locks granted": len(self._grants),
            "locks granted at rest": len(self._last),
            "writes with tokens": len(self._writes),
            "tokens refused, locks lost": self._refused,
        }


def _one_call(request: Any) -> CallPlan[Any]:
    (reply,) = yield CallOwners([(-1, request)], 0)
    return reply


class _Numbers:
    """What plans need of a client."""

    def __init__(self, workload: Workload, partition_count: int) -> None:
        self.next_id = workload.next_number
        self.partition_count = partition_count
