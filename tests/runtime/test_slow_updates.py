"""A program's function that holds up its member is told by name, now and then (PX-16)."""

import asyncio
import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.common.errors import UsageError
from phalanx.reports.event_words import in_words, level_of
from phalanx.runtime.statistics.slow_updates import TELL_AGAIN_S, SlowUpdates
from phalanx.wire.update_events import UpdateWasSlow


class Measured:
    """Functions with a stopwatch, and a clock that they move."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.recorded: list[UpdateWasSlow] = []
        slow = SlowUpdates(20, self.recorded.append, lambda: self.now_s)
        self.functions = slow.measured({"doze": self._doze, "fail": self._fail})

    def _doze(self, seconds: float) -> str:
        self.now_s += seconds
        return "done"

    def _fail(self, seconds: float) -> None:
        self.now_s += seconds
        raise ValueError("no")


@pytest.mark.rows("PX-16")
def test_a_call_that_takes_longer_is_recorded_and_others_are_not() -> None:
    measured = Measured()
    assert [measured.functions["doze"](0.02), measured.recorded] == ["done", []]
    assert measured.functions["doze"](0.5) == "done"
    assert measured.recorded == [UpdateWasSlow("doze", 500, 20, 0)]


def test_one_that_raises_has_held_up_the_member_too() -> None:
    measured = Measured()
    with pytest.raises(ValueError, match="no"):
        measured.functions["fail"](0.03)
    assert [each.function for each in measured.recorded] == ["fail"]


@pytest.mark.rows("PX-16")
def test_each_function_is_told_now_and_then_and_the_calls_in_between_are_counted() -> None:
    measured = Measured()
    for _ in range(3):
        measured.functions["doze"](0.5)
    with pytest.raises(ValueError, match="no"):
        measured.functions["fail"](0.5)
    assert [each.function for each in measured.recorded] == ["doze", "fail"]
    measured.now_s += TELL_AGAIN_S
    measured.functions["doze"](0.25)
    assert measured.recorded[2:] == [UpdateWasSlow("doze", 250, 20, 2)]


def test_what_cannot_be_recorded_hurts_nobody() -> None:
    def record(event: Any) -> None:
        raise OSError("the disk is full")

    slow = SlowUpdates(20, record)
    assert slow.measured({"doze": lambda: time.sleep(0.03)})["doze"]() is None


def test_the_event_in_words() -> None:
    told = "was held up for 500 ms by one call of function doze (update_warning_ms: 20)"
    once = UpdateWasSlow("doze", 500, 20, 0)
    assert (level_of(once), in_words(once)) == (logging.WARNING, told)
    more = f"{told}; 2 more were slow since the last such line"
    assert in_words(UpdateWasSlow("doze", 500, 20, 2)) == more


@pytest.mark.rows("PX-16")
@pytest.mark.parametrize("warning_ms", [1, 0])
def test_a_member_tells_it_in_its_event_log_unless_it_is_turned_off(tmp_path: Path, warning_ms: int) -> None:
    def doze(value: object) -> object:
        time.sleep(0.05)
        return phalanx.UNCHANGED

    async def run() -> None:
        settings = phalanx.Config(port=0, functions=[doze], event_log=str(tmp_path), update_warning_ms=warning_ms)
        member = await phalanx.start_member(settings)
        await member.map("m").update("k", "doze")
        await member.stop()

    asyncio.run(run())
    lines = [json.loads(line) for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    told = [line for line in lines if line["event"] == "UpdateWasSlow"]
    assert [line["function"] for line in told] == ["doze"] * bool(warning_ms)
    assert all(line["took_ms"] >= 50 and line["rule"] == "PX-16" for line in told)


def test_a_negative_time_is_refused() -> None:
    with pytest.raises(UsageError, match="update_warning_ms: -1 must not be negative; 0 turns it off"):
        phalanx.Config(update_warning_ms=-1)
