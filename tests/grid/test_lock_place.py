"""The queue of one lock beside a plain list of its waiters (PX-27)."""

from random import Random

import pytest

from phalanx.common.ids import MemberId
from phalanx.grid.locking.place import SPARE_ENDS, Place, Waiter, WaiterCount
from phalanx.grid.replica.lock_state import Holder, LockState
from phalanx.grid.replication.waiting_requests import WaitingRequests

X = MemberId("X:5701/1")


def waiter(holder: str, since: int, until: int) -> Waiter:
    return Waiter(since, X, 1, holder, 1, 1_000, since, until)


@pytest.mark.parametrize("seed", range(20))
def test_the_queue_is_that_of_a_plain_list(seed: int) -> None:
    count = WaiterCount(WaitingRequests())
    rng, place, other, plain = Random(seed), Place(count), Place(count), list[Waiter]()
    other.enter(waiter("elsewhere", 0, 1_000))
    for now in range(600):
        chosen = rng.random()
        holder = f"h{rng.randrange(30)}"
        if chosen < 0.6:
            came = waiter(holder, now - rng.choice((0, 0, 3, 100)), now + rng.choice((0, 5, 50)))
            plain = [each for each in plain if each.holder != holder]
            plain.append(came)
            plain.sort(key=lambda each: each.since)
            place.enter(came)
        elif chosen < 0.75:
            left = next((each for each in plain if each.holder == holder), None)
            assert place.leave(holder) is left
            plain = [each for each in plain if each is not left]
        elif chosen < 0.9 and plain:
            assert place.leave_first() is plain.pop(0)
        else:
            ended = [each for each in plain if each.until <= now]
            assert {each.holder for each in place.leave_ended(now)} == {each.holder for each in ended}
            plain = [each for each in plain if each not in ended]
        assert place.queue == plain
        assert count.waiters == len(plain) + 1
        assert place.next_end() == min((each.until for each in plain), default=None)
        assert len(place._untils) <= 2 * len(plain) + SPARE_ENDS + 60
    assert place.leave_all() == plain
    assert (count.waiters, place.next_end()) == (1, None)


def test_who_asks_again_all_the_time_leaves_nothing_behind() -> None:
    place = Place(WaiterCount(WaitingRequests()))
    for now in range(10_000):
        place.enter(waiter("one", 0, now + 60_000))
    assert len(place.queue) == 1
    assert len(place._untils) <= SPARE_ENDS + 3
    assert place.next_end() == 69_999


def test_the_next_end_is_that_of_a_lease_or_of_a_wait() -> None:
    place = Place(WaiterCount(WaitingRequests()))
    assert place.next_end() is None
    place.follow(LockState(7, True, 1, (Holder("one", 7, 100),)), 0)
    assert place.next_end() == 100
    place.enter(waiter("two", 0, 50))
    assert place.next_end() == 50
    place.enter(waiter("two", 0, 200))
    assert place.next_end() == 100
    place.follow(LockState(7, True), 0)
    assert place.next_end() == 200
