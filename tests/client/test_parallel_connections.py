"""Several addresses: a dead one costs no time, and who answers first is asked."""

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest

from phalanx.client.parallel_connections import connect_in_parallel
from phalanx.common.errors import ConnectError, UsageError
from phalanx.common.ids import Address, MemberId

DEADLINE_S = 30.0


class Fake:
    """Connects by calling something; counts how often it was closed."""

    def __init__(self, name: str, connect: Callable[[], object] = lambda: None) -> None:
        self.address = Address(f"{name}:1")
        self._connect = connect
        self.begun = threading.Event()
        self.closed = threading.Event()

    def member(self) -> MemberId:
        self.begun.set()
        self._connect()
        return MemberId(f"{self.address}/1")

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """What connections wait for that never come about; set at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


def failing(error: Exception) -> Callable[[], object]:
    def connect() -> None:
        raise error

    return connect


def test_one_from_which_nothing_comes_is_not_waited_for(held: threading.Event) -> None:
    hung, live = Fake("hung", held.wait), Fake("live")
    with contextlib.closing(connect_in_parallel([hung, live], 3_600)) as answers:
        assert next(answers) is live
        assert hung.begun.is_set()
    assert live.closed.is_set()
    held.set()
    assert hung.closed.wait(DEADLINE_S), "it connects when nobody wants it any more, and is closed"


def test_of_several_that_are_alive_the_first_is_asked_and_no_other() -> None:
    first, second = Fake("first"), Fake("second")
    with contextlib.closing(connect_in_parallel([first, second], 3_600)) as answers:
        assert next(answers) is first
    assert not second.begun.is_set()


def test_the_next_begins_as_soon_as_one_has_failed_and_each_failure_is_told() -> None:
    problem = ConnectError("refused")
    dead, live = Fake("dead", failing(problem)), Fake("live")
    assert list(connect_in_parallel([dead, live], 3_600)) == [problem, live]
    assert live.closed.is_set()


def test_a_name_that_takes_too_long_to_look_up_is_given_up(
    held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phalanx.client.parallel_connections.SPARE_S", 0.0)
    [problem] = connect_in_parallel([Fake("slow", held.wait)], 0.05)
    assert isinstance(problem, ConnectError)
    assert str(problem) == "slow:1 did not answer within 0.05 s: looking up its name may hang"


def test_what_is_no_matter_of_availability_is_raised_at_once(held: threading.Event) -> None:
    wrong = Fake("wrong", failing(UsageError("no secret")))
    with pytest.raises(UsageError, match="no secret"):
        next(connect_in_parallel([wrong, Fake("hung", held.wait)], 3_600))
