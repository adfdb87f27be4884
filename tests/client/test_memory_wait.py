"""A job waits while members have no memory, and fails in the end with what they said."""

import pytest

from phalanx.client.memory_wait import LONGEST_PAUSE_S, wait_for_memory
from phalanx.common.errors import GridFull, IndeterminateWrite, UnavailableError


class Time:
    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.mark.parametrize("kind", [GridFull, IndeterminateWrite])
def test_a_write_is_done_again_until_there_is_memory(kind: type[Exception]) -> None:
    time, tries = Time(), iter([kind("full"), kind("full"), None])

    def write() -> str:
        if (error := next(tries)) is not None:
            raise error
        return "done"

    assert wait_for_memory(write, 30, clock=time.clock, sleep=time.sleep) == "done"
    assert time.pauses == [0.1, 0.2]


def test_the_last_error_is_raised_when_the_time_is_over() -> None:
    time = Time()

    def write() -> None:
        raise GridFull(f"full at {time.now:.0f}")

    with pytest.raises(GridFull, match="full at 10"):
        wait_for_memory(write, 10, clock=time.clock, sleep=time.sleep)
    assert max(time.pauses) == LONGEST_PAUSE_S


def test_other_errors_are_not_waited_for() -> None:
    def write() -> None:
        raise UnavailableError("down")

    time = Time()
    with pytest.raises(UnavailableError):
        wait_for_memory(write, 10, clock=time.clock, sleep=time.sleep)
    assert not time.pauses
