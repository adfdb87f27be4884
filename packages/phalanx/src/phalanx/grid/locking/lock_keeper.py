"""Grants locks and permits, in the partitions that this member owns: in the order of the queue, for as long as leases last.

What is granted is a write: the holder is in the replicated state (`replica.lock_state`) before its caller is told, and so
is its fencing token. What is not replicated:

* the ends of leases. Members' clocks cannot be compared, so an owner that takes over lets each lease begin anew. A lease
  can last longer than its holder believes by that, and never ends earlier. A renewal changes nothing in the state, but its
  answer waits until the backups confirm that this member still owns the partition:

  1. A owns the lock, and H holds it. A hangs; B takes over, lets H's lease begin anew, and sees it end. 2. B grants the
  lock to G. 3. A goes on, and H's renewal was the first thing in its queue. Did A answer by itself, H would go on, too.

* the queue. A caller asks the new owner again, and says how long it has waited: so it keeps its place before all that
  came later.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple

from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import has_locks, lock_map, target_of
from phalanx.common.ids import Millis
from phalanx.common.invariant import invariant
from phalanx.grid.locking.forgetting import forget_oldest
from phalanx.grid.locking.place import Place, Waiter, WaiterCount
from phalanx.grid.replica.lock_state import (
    FENCE_MS,
    UNUSED,
    Fencing,
    Holder,
    LockState,
    decode_state,
    encode_state,
    judge_token,
)
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replication.call import PartitionCall
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.ownership import Ownership
from phalanx.grid.replication.pending_writes import PendingWrite
from phalanx.grid.replication.protection import ProtectionGuard
from phalanx.grid.replication.waiting_requests import REQUEST_BYTES
from phalanx.grid.serving.replies import Replies
from phalanx.machine.alarms import Alarm
from phalanx.wire.messages import (
    AcquireLock,
    AppliedOperation,
    FlagReply,
    GetLock,
    LockReply,
    LockStateReply,
    ReleaseLock,
    RenewLock,
    ReplicatePut,
    ReplicateRemove,
    WriteFenced,
)

MAX_WAITED_MS: Millis = 366 * 86_400_000
"""What a caller can say at most that it has waited: the longest wait that clients know, and some more."""
IN_A_TURN = 500
"""The most planned looks at locks that come in one turn, also at those that nobody holds any more."""
SEEN_IN_A_TURN = 2_000
"""The most locks of partitions taken over whose leases begin in one turn."""
SPARE_LOOKS = 1_000
"""How many planned looks can be over before the list is made anew."""
PAUSE_MS: Millis = 5
"""Between two turns while more is to be looked at."""
SEALED_PAUSE_MS: Millis = 100
"""Until a lock in a partition that answers nothing at present is looked at again."""


class Lock(NamedTuple):
    """One lock or semaphore, in a partition that is owned here."""

    owned: OwnedPartition
    name: str
    """The hidden map with its state."""
    key: bytes

    def state(self, now: Millis) -> LockState:
        """Return its replicated state."""
        return state_of(self.owned.replica, self.name, self.key, now)


class LockKeeper:
    """The locks of the partitions that this member owns."""

    def __init__(self, leader: Leader, ownership: Ownership, guard: ProtectionGuard, replies: Replies) -> None:
        self._leader = leader
        self._ownership = ownership
        self._guard = guard
        self._replies = replies
        self._places: dict[int, dict[tuple[str, bytes], Place]] = {}
        """Partition, then hidden map and key, to what is kept of a lock that somebody holds or waits for."""
        self._count = 0
        """How many places there are in all partitions."""
        self._waiting = WaiterCount(replies.waiting)
        """How many callers are in the queues of these places."""
        self._looks: list[tuple[Millis, int, str, bytes]] = []
        """Heap of the times at which places are looked at; those that are not a place's `look_at` are over."""
        self._pause_until: Millis = 0
        self._unseen: dict[int, list[tuple[str, bytes]]] = {}
        """Partitions taken over, with the locks whose leases have not begun here yet."""
        self.alarm = Alarm(self)

    def __repr__(self) -> str:
        return f"LockKeeper({sum(map(len, self._places.values()))} places, unseen={list(self._unseen)})"

    @property
    def is_busy(self) -> bool:
        """Return whether somebody holds or waits for a lock here."""
        return bool(self._unseen) or any(self._places.values())

    @property
    def count(self) -> int:
        """Return how many locks and semaphores somebody holds or waits for here."""
        return self._count

    @property
    def waiters(self) -> int:
        """Return how many callers wait for them."""
        return self._waiting.waiters

    def validate(self) -> None:
        """Raise `InvariantViolation` if what is counted is not what there is."""
        places = [place for of in self._places.values() for place in of.values()]
        waiters = sum(len(place.queue) for place in places)
        invariant(self._count == len(places), "locks are counted as they come and go", keeper=self, counted=self._count)
        invariant(self.waiters == waiters, "waiters are counted as they come and go", keeper=self, waiters=waiters)

    # --- ownership -------------------------------------------------------------------------------------------------

    def take_over(self, owned: OwnedPartition) -> None:
        """Take a partition that this member now owns."""
        maps = owned.replica.maps
        # A state with a time to live is of a lock that nobody holds.
        if held := [
            (name, key)
            for name, store in maps.items()
            if has_locks(name)
            for key in store.entries
            if key not in store.expires_at
        ]:
            self._unseen[owned.number] = held
            self.alarm.follow()

    def release_partition(self, partition: int) -> None:
        """Forget a partition that is not owned here any more: callers that wait ask the new owner."""
        self._unseen.pop(partition, None)
        places = self._places.pop(partition, {})
        self._count -= len(places)
        for place in places.values():
            for waiter in place.leave_all():
                text = f"partition {partition} got another owner while the caller waited for a lock"
                self._replies.fail(waiter.caller, waiter.request_id, ErrorCode.NOT_OWNER, text)

    def on_merged(self, owned: OwnedPartition, name: str, keys: list[bytes], now: Millis) -> None:
        """Follow states that came with a merge: another side's holder may have taken the place of this side's."""
        for key in keys:
            lock = Lock(owned, name, key)
            self._go_on(lock, lock.state(now), now)

    # --- requests --------------------------------------------------------------------------------------------------

    def acquire(self, call: PartitionCall[AcquireLock]) -> None:
        """Grant the lock, or let the caller wait for it."""
        caller, request, now, owned = call.caller, call.request, call.now, call.owned
        lock = Lock(owned, lock_map(request.map, is_semaphore=request.permits > 0), request.key)
        holder, state, permits = request.holder, lock.state(now), request.permits or 1
        waiter = Waiter(
            now - min(max(request.waited_ms, 0), MAX_WAITED_MS), caller, request.id, holder, permits, request.lease_ms, now,
            now + request.wait_ms, REQUEST_BYTES + len(lock.key) + len(holder),
        )  # fmt: skip
        if not state.holders and (lock.name, lock.key) not in self._places.get(owned.number, ()):
            # The usual case: nobody holds it, and nobody waits.
            place = self._place(lock)
            self._grant(lock, place, state, waiter, now)
            self._plan(lock, place)
            return
        state = self._without_ended(lock, state, now)
        place = self._place(lock)
        if (held := state.find(holder)) is not None:
            # It was granted, and the answer was lost.
            place.ends[holder] = now + held.lease_ms
            self._leader.answer_behind(call, lock.name, LockReply(request.id, held.token, 0))
        elif state.holders and state.permits != permits:
            self._replies.refuse(call, ErrorCode.INVALID, _other_permits(request.map, state, permits))
        else:
            place.enter(waiter)
            self._grant_next(lock, place, state, now)
            if place.has(waiter):
                self._let_wait(place, waiter, now)
        self._plan(lock, place)

    def _let_wait(self, place: Place, waiter: Waiter, now: Millis) -> None:
        """Let a caller in the queue wait, unless it is to be answered at once, or is one too many."""
        waiting = self._replies.waiting
        if waiter.until <= now:
            place.leave(waiter.holder)
            self._answer_not(waiter, now)
        elif why := waiting.excess(waiter.caller):
            place.leave(waiter.holder)
            waiting.refused += 1
            self._replies.fail(waiter.caller, waiter.request_id, ErrorCode.UNAVAILABLE, why)

    def renew(self, call: PartitionCall[RenewLock]) -> None:
        """Begin a lease anew."""
        lock = lock_of(call)
        state = lock.state(call.now)
        held = state.find(call.request.holder)
        if held is not None:
            place = self._place(lock)
            place.follow(state, call.now)
            place.ends[held.id] = call.now + held.lease_ms
            self._plan(lock, place)
        self._leader.answer_behind(call, lock.name, FlagReply(call.request.id, held is not None))

    def release(
        self, call: PartitionCall[ReleaseLock], lock: Lock, state: LockState, applied: AppliedOperation | None
    ) -> None:
        """End a holding, or a waiting.

        `lock`, `state`: that of the request, and what it is now. `applied`: what all replicas record of it. Without that,

        1. the owner ends the holding, and dies before its caller has the answer; 2. its successor is asked, finds no such
        holder, and says so; 3. a program that released its lock in time is told that it had lost it.
        """
        request, now, place = call.request, call.now, self._find_place(lock)
        if place is not None and (waiter := place.leave(request.holder)) is not None:
            self._answer_not(waiter, now)
        if state.find(request.holder) is None:
            self._leader.answer_behind(call, lock.name, FlagReply(request.id, False), applied)
        else:
            state = state.without(request.holder, is_unused=request.is_unused)
            self._write(lock, state, now, PendingWrite(call.caller, FlagReply(request.id, True), 0, lock.name), applied)
            if place is not None:
                self._go_on(lock, state, now)

    def describe(self, call: PartitionCall[GetLock]) -> None:
        """Tell who holds the lock, and how many wait."""
        lock, now = lock_of(call), call.now
        state, place = lock.state(now), self._find_place(lock) or Place(self._waiting)
        place.follow(state, now)
        left = [max(place.ends[holder.id] - now, 0) for holder in state.holders]
        ids, tokens = [holder.id for holder in state.holders], [holder.token for holder in state.holders]
        permits = state.permits if state is not UNUSED else 0
        reply = LockStateReply(call.request.id, state.token, permits, ids, tokens, left, len(place.queue))
        self._replies.send(call.caller, reply)

    def fence(self, call: PartitionCall[WriteFenced]) -> Fencing:
        """Decide about a write with a fencing token. If it passes, no older one will from now on."""
        request, now = call.request, call.now
        lock = Lock(call.owned, lock_map(request.map), request.key)
        state = self._without_ended(lock, lock.state(now), now)
        floor = call.owned.replica.evicted_to_of(lock.name)
        verdict = judge_token(state, request.fence, self._leader.clock.read(now), floor)
        if verdict is Fencing.RAISES or (verdict is Fencing.PASSES and self._is_old(lock, now)):
            self._write(lock, state.fenced(request.fence) if verdict is Fencing.RAISES else state, now)
        return verdict

    def _is_old(self, lock: Lock, now: Millis) -> bool:
        """Return whether the state would be forgotten soon although the key is still written with its token."""
        return 0 < lock.owned.replica.maps[lock.name].remaining_ms(lock.key, now) < FENCE_MS // 2

    # --- time ------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> Millis | None:
        if self._unseen:
            return self._ownership.table_installed_at
        return max(self._looks[0][0], self._pause_until) if self._looks else None

    def on_time(self, now: Millis) -> None:
        if self._unseen:
            self._begin_leases(now)
        if now < self._pause_until:
            return
        room = IN_A_TURN
        while self._looks and self._looks[0][0] <= now and room > 0:
            at, partition, name, key = heappop(self._looks)
            room -= 1
            place = self._places.get(partition, {}).get((name, key))
            if place is None or place.look_at != at:
                continue
            owned = self._ownership.owned[partition]
            if owned is None:
                # Sealed, or not ready: what happens next is decided by its table.
                place.look_at = now + SEALED_PAUSE_MS
                heappush(self._looks, (place.look_at, partition, name, key))
                continue
            place.look_at = None
            lock = Lock(owned, name, key)
            self._go_on(lock, lock.state(now), now)
        if room == 0:
            self._pause_until = now + PAUSE_MS

    def _begin_leases(self, now: Millis) -> None:
        """Let the leases of partitions that were taken over begin."""
        room = SEEN_IN_A_TURN
        while self._unseen and room > 0:
            partition, left = next(iter(self._unseen.items()))
            owned = self._ownership.find_owned(partition)
            while left and room > 0 and owned is not None:
                lock = Lock(owned, *left.pop())
                room -= 1
                state = lock.state(now)
                if state.holders:
                    place = self._place(lock)
                    place.follow(state, now)
                    self._plan(lock, place)
            if not left or owned is None:
                del self._unseen[partition]

    def _go_on(self, lock: Lock, state: LockState, now: Millis) -> None:
        """End what is over, grant what is free, and plan the next look."""
        place = self._place(lock)
        place.follow(state, now)
        state = self._without_ended(lock, state, now)
        self._grant_next(lock, place, state, now)
        for waiter in place.leave_ended(now):
            self._answer_not(waiter, now)
        self._plan(lock, place)

    # --- one lock --------------------------------------------------------------------------------------------------

    def _find_place(self, lock: Lock) -> Place | None:
        return self._places.get(lock.owned.number, {}).get((lock.name, lock.key))

    def _place(self, lock: Lock) -> Place:
        place = self._find_place(lock)
        if place is None:
            place = Place(self._waiting)
            self._places.setdefault(lock.owned.number, {})[lock.name, lock.key] = place
            self._count += 1
        return place

    def _plan(self, lock: Lock, place: Place) -> None:
        """Plan the next look at a place, or forget it, if nobody holds the lock or waits for it."""
        at = place.next_end()
        if at is None:
            del self._places[lock.owned.number][lock.name, lock.key]
            self._count -= 1
        elif place.look_at is None or at < place.look_at:
            place.look_at = at
            heappush(self._looks, (at, lock.owned.number, lock.name, lock.key))
            if len(self._looks) > 2 * self._count + SPARE_LOOKS:
                # Most of what was planned is over: locks are held for much shorter than their leases.
                self._looks = [
                    (each.look_at, number, *of)
                    for number, places in self._places.items()
                    for of, each in places.items()
                    if each.look_at is not None
                ]
                heapify(self._looks)
            self.alarm.follow()

    def _without_ended(self, lock: Lock, state: LockState, now: Millis) -> LockState:
        """Return the state without holders whose leases have ended, and let the backups know."""
        if not state.holders:
            return state
        place = self._place(lock)
        place.follow(state, now)
        ended = [holder for holder, end in place.ends.items() if end <= now]
        if not ended:
            self._plan(lock, place)
            return state
        for holder in ended:
            state = state.without(holder)
        self._write(lock, state, now)
        return state

    def _grant_next(self, lock: Lock, place: Place, state: LockState, now: Millis) -> LockState:
        """Grant the lock to those who have waited longest, as long as there is room."""
        guard, name = self._guard, lock.name
        while place.queue and (state.has_room or not state.holders):
            waiter = place.leave_first()
            if state.holders and state.permits != waiter.permits:
                text = _other_permits(target_of(name), state, waiter.permits)
                self._replies.fail(waiter.caller, waiter.request_id, ErrorCode.INVALID, text)
            elif guard.watches(name) and (refusal := guard.find_refusal(name, is_write=True, now=now)):
                # 1. It waits, and is entitled to. 2. The view shrinks. 3. The lock becomes free on the side that is too
                # small by now, where nothing can be granted.
                self._replies.fail(waiter.caller, waiter.request_id, *refusal)
            else:
                state = self._grant(lock, place, state, waiter, now)
        return state

    def _grant(self, lock: Lock, place: Place, state: LockState, waiter: Waiter, now: Millis) -> LockState:
        """Let a caller hold the lock."""
        clock = self._leader.clock
        token = max(clock.stamp(now), state.token + 1)
        clock.observe(token, now)
        state = state.granted(Holder(waiter.holder, token, waiter.lease_ms), waiter.permits)
        place.ends[waiter.holder] = now + waiter.lease_ms
        reply = LockReply(waiter.request_id, token, now - waiter.received_at)
        self._write(lock, state, now, PendingWrite(waiter.caller, reply, 0, lock.name))
        return state

    def _write(
        self,
        lock: Lock,
        state: LockState,
        now: Millis,
        write: PendingWrite | None = None,
        applied: AppliedOperation | None = None,
    ) -> None:
        """Commit a state, and answer the caller, if somebody wants it, when the backups have it."""
        leader, (owned, name, key) = self._leader, lock
        place = self._find_place(lock)
        if place is not None:
            place.follow(state, now)
        if state.is_over:
            leader.commit(owned, ReplicateRemove, write, now, name, [key], [], applied)
        else:
            stored = leader.clock.stamped(encode_state(state), now)
            ttl_ms = 0 if state.holders else FENCE_MS
            leader.commit(owned, ReplicatePut, write, now, name, [key], [stored], ttl_ms, applied)
        if write is not None and not write.partitions_left:
            self._replies.send(write.caller, write.reply)
        if not state.holders:
            forget_oldest(leader, owned, name, self._ownership.config.max_lock_tokens, now)

    def _answer_not(self, waiter: Waiter, now: Millis) -> None:
        """Tell a caller that the lock was not to be had in its time."""
        self._replies.send(waiter.caller, LockReply(waiter.request_id, 0, now - waiter.received_at))


def lock_of(call: PartitionCall[RenewLock | ReleaseLock | GetLock]) -> Lock:
    """Return the lock or semaphore that a request names."""
    request = call.request
    return Lock(call.owned, lock_map(request.map, is_semaphore=request.is_semaphore), request.key)


def _other_permits(map_name: str, state: LockState, permits: int) -> str:
    return (
        f"a semaphore of map {map_name!r} has {state.permits} permits while somebody holds one, and {permits} were asked for: "
        f"give all callers the same number"
    )


def state_of(replica: Replica, name: str, key: bytes, now: Millis) -> LockState:
    """Return the state of a key's lock in a hidden map of locks."""
    store = replica.maps.get(name)
    value = store.get(key, now) if store is not None else None
    return UNUSED if value is None else decode_state(value)
