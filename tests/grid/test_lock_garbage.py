"""Requests for locks as no client sends them: each is answered or waits its time, and owner and backup stay equal (PX-27)."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from phalanx.common.hidden_maps import lock_map
from phalanx.grid.locking.lock_keeper import state_of
from phalanx.wire import messages as m
from phalanx.wire.limits import MAX_LEASE_MS, MAX_LOCK_WAIT_MS, MAX_PERMITS
from support.harness import KEY, MAP, TEXT, Cluster
from support.merges import replicas_agree

KINDS = (m.AcquireLock, m.RenewLock, m.ReleaseLock, m.GetLock, m.WriteFenced)
NUMBERS = st.sampled_from([0, 1, 2, -1, 1_000, MAX_PERMITS, MAX_LEASE_MS, MAX_LOCK_WAIT_MS, 2**31, 2**63 - 1, -(2**63)])
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    "map": st.sampled_from([MAP, MAP, MAP, "", "x" * 1_000, lock_map(MAP)]),
    "key": st.sampled_from([KEY, KEY, KEY, b"", b"abc", TEXT + b"x" * 70_000]),
    "holder": st.sampled_from(["one", "two", "three", "", "x" * 10_000]),
    "is_semaphore": st.booleans(),
    "value": st.sampled_from([None, TEXT + b"v", b""]),
}


@st.composite
def requests(draw: Any) -> Any:
    kind = draw(st.sampled_from(KINDS))
    names = [field.name for field in msgspec.structs.fields(kind) if field.name != "id"]
    return kind, {name: draw(VALUES.get(name, NUMBERS)) for name in names}


@given(st.lists(st.tuples(requests(), st.integers(0, 3_000)), max_size=12))
def test_whatever_comes_is_answered_and_changes_owner_and_backup_alike(asked: list[Any]) -> None:
    c = Cluster("AB", partition_count=1, backup_count=1)
    c.assign(rows=["AB"])
    sent = set()
    for (kind, fields), pause_ms in asked:
        number = c.next_id()
        sent.add(number)
        c.feed("A", c.received(kind(number, **fields)))
        c.settle()
        c.advance(pause_ms)
        for is_semaphore in (False, True):
            state = state_of(c.owned("A").replica, lock_map(MAP, is_semaphore=is_semaphore), KEY, c.now)
            assert len(state.holders) <= max(state.permits, 1)
            assert len({holder.token for holder in state.holders}) == len(state.holders)
    c.advance(MAX_LOCK_WAIT_MS + 1_000)
    assert sent <= set(c.replies), "each is answered in the end"
    assert replicas_agree(c, "AB")
