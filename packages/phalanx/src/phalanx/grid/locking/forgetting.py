"""Forget the states of locks that no caller holds, if there are more of them than can be remembered.

They go like entries of a bounded map: the stamp of the newest forgotten state is a floor, below which no token is
accepted for a key of which nothing is known (`lock_state.judge_token`). The floor is part of every replica, goes with
copies and splits, and stays until the tokens below it would be too old anyway. When sides merge, the owners of the
remaining side raise theirs to it.
"""

from __future__ import annotations

from phalanx.common.clock import stamp_of, with_stamp
from phalanx.common.ids import Millis
from phalanx.common.map_settings import EvictionPolicy
from phalanx.grid.replica.lock_state import UNUSED, encode_state, token_of
from phalanx.grid.replication.call import PartitionCall
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.pending_writes import PendingWrite
from phalanx.wire.messages import FindWrittenBefore, ReplicatePut, ReplicateRemove, Reply

FORGOTTEN_AT_ONCE = 100
"""The most states that are forgotten with one write, where a merge has brought many."""
NO_KEY = b""
"""No lock has this key."""


def forget_oldest(leader: Leader, owned: OwnedPartition, name: str, most: int, now: Millis) -> None:
    """Forget the states in a hidden map of locks that nobody has used for longest, if there are more than `most`."""
    store = owned.replica.maps.get(name)
    # A state with a time to live is of a lock that nobody holds.
    excess = len(store.expires_at) - most if store is not None else 0
    if store is None or excess <= 0:
        return
    keys = []
    for key in store.take_evicted(EvictionPolicy.SOONEST, excess, 0, FORGOTTEN_AT_ONCE, 0):
        if token_of(store.entries[key]) <= stamp_of(store.entries[key]):
            keys.append(key)
        else:  # It was written with a token that is ahead of the clock here: the floor would be too low.
            store.expire(key, store.expires_at[key], is_covering=False)
    if keys:
        stamp = leader.clock.stamp(now)
        leader.commit(owned, ReplicateRemove, None, now, name, keys, [], None, stamp, evicted=True)


def raise_floor(leader: Leader, call: PartitionCall[FindWrittenBefore], reply: Reply) -> None:
    """Refuse from now on what a merging side has refused, because it had forgotten states; then answer."""
    owned, name, stamp = call.owned, call.request.map, call.request.stamp
    # Of no map whose protection could withhold the answer: a member that merges would ask, and have this written, without end.
    write = PendingWrite(call.caller, reply, 0, "")
    if stamp > owned.replica.evicted_to_of(name):
        # A state of that stamp comes and is evicted: members of all releases know how.
        unused = with_stamp(stamp, encode_state(UNUSED))
        leader.commit(owned, ReplicatePut, None, call.now, name, [NO_KEY], [unused], 0)
        leader.commit(owned, ReplicateRemove, write, call.now, name, [NO_KEY], [], None, stamp, evicted=True)
    elif leader.is_unconfirmed(owned, name, call.now):
        leader.write_barrier(owned, name, write, call.now)
    if not write.partitions_left:
        leader.answer(write.caller, reply)
