"""What a caller of locks asks for, and until when it takes a lock for its own (PX-28)."""

from collections.abc import Callable
from typing import Any

import pytest

from phalanx.common.errors import ClientClosed, ErrorCode, NotEnoughMembers, UnavailableError, UsageError
from phalanx.maps.call_plans import CallOwners, CallPlan
from phalanx.maps.locks import (
    DRIFT,
    ROUNDING_S,
    Holding,
    Holdings,
    LockTerms,
    Releasable,
    acquire_plan,
    lock_terms,
    release_all_plan,
    release_plan,
    renew_plan,
)
from phalanx.wire import messages as m

KEY = b"\xff\xff\xff\xf5k"


class Client:
    """Numbers for requests, and a clock that the test moves."""

    partition_count = 7

    def __init__(self) -> None:
        self.now_s = 100.0
        self._last = 0

    def next_id(self) -> int:
        self._last += 1
        return self._last

    def clock(self) -> float:
        return self.now_s


@pytest.fixture
def client() -> Client:
    return Client()


def terms(*, lease: float = 10, wait: float | None = 5, permits: int = 0) -> LockTerms:
    return lock_terms("m", KEY, "k", lease, wait, permits=permits)


def play(client: Client, plan: CallPlan[Any], *answers: Callable[[Any], tuple[float, Any]]) -> tuple[Any, list[Any]]:
    """Answer each request, after some seconds; the plan's result, and the requests."""
    requests, outcome = [], None
    try:
        for answer in answers:
            step = plan.send(outcome)
            assert isinstance(step, CallOwners)
            ((_, request),) = step.requests
            requests.append(request)
            after_s, reply = answer(request)
            client.now_s += after_s
            outcome = [reply]
        plan.send(outcome)
    except StopIteration as end:
        return end.value, requests
    raise AssertionError("the plan goes on")


def granted(token: int, after_s: float = 0.0, waited_ms: int = 0) -> Callable[[Any], tuple[float, Any]]:
    return lambda request: (after_s, m.LockReply(request.id, token, waited_ms))


def refused(code: ErrorCode) -> Callable[[Any], tuple[float, Any]]:
    return lambda request: (0.0, m.ErrorReply(request.id, code, "no"))


def acquire(client: Client, wanted: LockTerms) -> CallPlan[Holding | None]:
    return acquire_plan(wanted, "me/1", wanted.wait_s, client, "task", client.clock)


def hold(client: Client, lease: float = 10) -> Holding:
    holding, _ = play(client, acquire(client, terms(lease=lease)), granted(7))
    assert isinstance(holding, Holding)
    return holding


@pytest.mark.rows("PX-28")
def test_a_lease_is_counted_from_when_it_was_asked_for_and_what_the_owner_let_it_wait(client: Client) -> None:
    holding, (request,) = play(client, acquire(client, terms()), granted(7, after_s=3, waited_ms=2_000))
    assert (holding.token, request.holder, request.wait_ms, request.waited_ms) == (7, "me/1", 1_000, 0)
    end = 100 + 12 * (1 - DRIFT)
    assert holding.is_held(end - 0.01)
    assert not holding.is_held(end)


def test_who_waits_asks_again_for_as_long_as_it_wants_to_and_says_how_long_it_has_waited(client: Client) -> None:
    nothing, requests = play(
        client, acquire(client, terms(wait=2.5)), *[granted(0, after_s=1)] * 2, granted(0, after_s=0.5)
    )
    assert nothing is None
    assert [(each.wait_ms, each.waited_ms) for each in requests] == [(1_000, 0), (1_000, 1_000), (500, 2_000)]
    assert len({each.id for each in requests}) == 3
    assert {each.holder for each in requests} == {"me/1"}


def test_who_does_not_want_to_wait_asks_once(client: Client) -> None:
    nothing, [request] = play(client, acquire(client, terms(wait=0)), granted(0))
    assert (nothing, request.wait_ms) == (None, 0)


def test_who_waits_without_end_goes_on(client: Client) -> None:
    holding, requests = play(client, acquire(client, terms(wait=None)), *[granted(0, after_s=1)] * 50, granted(9))
    assert holding.token == 9
    assert len(requests) == 51


def test_what_was_over_before_the_answer_came_is_asked_for_again_and_then_given_up(client: Client) -> None:
    holding, _ = play(client, acquire(client, terms(lease=1)), granted(7, after_s=1), granted(7))
    assert holding.token == 7
    with pytest.raises(UnavailableError, match=r"its lease of 1 s was over before the answer came, twice"):
        play(client, acquire(client, terms(lease=1)), granted(7, after_s=1), granted(7, after_s=1))


def test_errors_say_that_it_is_not_held(client: Client) -> None:
    with pytest.raises(UnavailableError, match="it is not held: if it was granted, it ends with its lease"):
        play(client, acquire(client, terms()), refused(ErrorCode.INDETERMINATE))
    with pytest.raises(NotEnoughMembers):
        play(client, acquire(client, terms()), refused(ErrorCode.NOT_ENOUGH_MEMBERS))


@pytest.mark.rows("PX-28")
def test_a_renewal_counts_from_when_it_was_asked_for(client: Client) -> None:
    holding = hold(client)
    client.now_s += 4
    play(client, renew_plan([holding], 1, client, client.clock), lambda request: (2.0, m.FlagReply(request.id, True)))
    assert holding.is_held(104 + 10 * (1 - DRIFT) - 0.01)
    assert not holding.is_held(104 + 10 * (1 - DRIFT))
    assert not holding.is_lost


def test_a_renewal_that_nobody_answers_is_tried_again_until_the_lease_ends(client: Client) -> None:
    holding = hold(client)
    client.now_s = holding.renew_at
    assert holding.renew_at < 104
    play(client, renew_plan([holding], 1, client, client.clock), refused(ErrorCode.UNAVAILABLE))
    assert client.now_s < holding.renew_at < client.now_s + 1
    assert holding.is_held(client.now_s)
    assert not holding.is_held(110)


def test_who_is_told_that_it_holds_nothing_has_lost_it(client: Client) -> None:
    holding = hold(client)
    play(client, renew_plan([holding], 1, client, client.clock), lambda request: (0, m.FlagReply(request.id, False)))
    assert holding.is_lost
    assert not holding.is_held(client.now_s)


def test_what_is_held_is_known_by_task_and_renewed_in_its_order(client: Client) -> None:
    held = Holdings()
    long, brief = hold(client, lease=30), hold(client, lease=3)
    held.add(long)
    held.add(brief)
    assert held.find(terms(), "task") is brief
    assert held.find(terms(), "another") is held.find(terms(permits=1), "task") is None
    assert held.next_renewal(100) == brief.renew_at
    assert held.due(brief.renew_at) == [brief]
    brief.is_lost = True
    assert held.next_renewal(100) == long.renew_at
    held.forget(brief)
    held.forget(brief)
    assert held.find(terms(), "task") is long
    assert held.take_all() == [long.to_release()]
    assert not held


def test_a_release_tells_whether_it_was_held(client: Client) -> None:
    done, [request] = play(
        client,
        release_plan(Releasable(terms(permits=2), "me/1"), client, lambda number: number - 1),
        lambda request: (0, m.FlagReply(request.id, True)),
    )
    assert done
    assert (request.holder, request.is_semaphore) == ("me/1", True)
    assert (request.op, request.open_from) == (0, request.id - 1)


def test_what_a_task_that_has_ended_held_is_renewed_no_more_and_forgotten_with_its_lease(client: Client) -> None:
    held = Holdings(is_over=lambda who: who == "task")
    holding = hold(client)
    held.add(holding)
    assert held.next_renewal(100) is None
    assert held.due(holding.renew_at) == []
    assert held.all() == [holding], "a client that closes releases it"
    assert held.due(holding.ends_at) == []
    assert not held


def test_an_owner_that_does_not_answer_takes_no_other_lock_along(client: Client) -> None:
    held, long, brief = Holdings(), hold(client, lease=30), hold(client, lease=3)
    assert held.patience(100) == 0
    held.add(long)
    held.add(brief)
    assert held.patience(101) == (brief.ends_at - 101) / 2
    brief.is_lost = True
    assert held.patience(101) == (long.ends_at - 101) / 2, "nothing is left of the other"
    plan = renew_plan([long, brief], 1.5, client, client.clock)
    step = plan.send(None)
    assert isinstance(step, CallOwners)
    assert step.within_ms == 1_500
    (_, one), (_, other) = step.requests
    client.now_s += 1.5
    with pytest.raises(StopIteration):
        plan.send([m.ErrorReply(one.id, ErrorCode.UNAVAILABLE, "no"), m.FlagReply(other.id, True)])
    assert brief.ends_at == 100 + 3 * (1 - DRIFT) - ROUNDING_S
    assert client.now_s < long.renew_at < client.now_s + 1


@pytest.mark.parametrize(
    "answer", [granted(0), granted(7), refused(ErrorCode.INDETERMINATE)], ids=["not yet", "granted", "none"]
)
def test_a_call_ends_when_its_client_was_closed_meanwhile(
    client: Client, answer: Callable[[Any], tuple[float, Any]]
) -> None:
    plan = acquire_plan(terms(), "me/1", 5, client, "task", client.clock, is_closed=lambda: True)
    with pytest.raises(ClientClosed, match="acquire lock 'k' of map 'm': the client was closed meanwhile"):
        play(client, plan, answer)


def test_what_a_closed_client_held_and_waited_for_is_released_at_once(client: Client) -> None:
    plan = release_all_plan(
        [Releasable(terms(), "me/1"), Releasable(terms(permits=2), "me/2", False)], 1_000, client, lambda number: 1
    )
    step = plan.send(None)
    assert isinstance(step, CallOwners)
    assert step.within_ms == 1_000
    assert [(each.holder, each.is_semaphore) for _, each in step.requests] == [("me/1", False), ("me/2", True)]
    with pytest.raises(StopIteration):
        plan.send([None, None])
    with pytest.raises(StopIteration):
        release_all_plan([], 1_000, client, lambda number: 1).send(None)


@pytest.mark.parametrize("wait", [-1, -1.0, float("nan"), float("inf"), 10**400, 365 * 86_400 + 1, True, "1"])
def test_a_wait_that_is_none_is_refused(wait: Any) -> None:
    with pytest.raises(
        UsageError, match=r"^wait is .*: give seconds, .*0 .* \(a year\), or None to wait without a limit"
    ):
        terms(wait=wait)


@pytest.mark.parametrize("lease_ms", [5, 10, 49, 1_000])
def test_a_holder_gives_up_first_whatever_part_of_a_millisecond_its_owner_does_not_see(
    client: Client, lease_ms: int
) -> None:
    for micros in range(0, 1_000, 50):
        client.now_s = began = 100 + micros / 1e6
        holding = hold(client, lease=lease_ms / 1_000)
        assert holding.ends_at <= (int(began * 1_000) + lease_ms) / 1_000
