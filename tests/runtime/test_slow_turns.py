"""A member that was busy with one input for long says with what; now and then, and counts the rest."""

import asyncio
import logging
import time
from typing import Any

import pytest

import phalanx
from phalanx.common.errors import UsageError
from phalanx.common.ids import ClientId
from phalanx.machine.inputs import Call, Received, ReceivedTogether, TimePassed
from phalanx.runtime.statistics.slow_turns import TELL_AGAIN_S, SlowTurns, described
from phalanx.wire import messages as m

CLIENT = ClientId("client/1")


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Received(CLIENT, m.ScanPartition(1, "m", 7, 271, b"", 1)), "ScanPartition, map 'm', partition 7 of 'client/1'"),
        (Received(CLIENT, m.GetAll(1, "m\n\x1b", [b"k"] * 3)), "GetAll, map 'm\\n\\x1b', 3 keys of 'client/1'"),
        (Received(CLIENT, m.SizeOf(1, "m" * 100, [1, 2], 9)), f"SizeOf, map '{'m' * 60}...', 2 partitions of 'client/1'"),
        (
            ReceivedTogether(CLIENT, [*[m.Get(1, "m", b"k")] * 2, m.GetReplicas(3)]),
            "2 Get, 1 GetReplicas of 'client/1'",
        ),
        (Call(3, m.Get(1, "m", b"k")), "Get, map 'm' of this program"),
        (TimePassed(), "TimePassed"),
    ],
)  # fmt: skip
def test_an_input_is_described_in_a_few_words(event: Any, words: str) -> None:
    assert described(event) == words


def test_it_is_told_now_and_then_and_always_counted(caplog: pytest.LogCaptureFixture) -> None:
    turns = SlowTurns(100)
    for now in (0.0, 1.0, 2.0, TELL_AGAIN_S):
        turns.note("A:1", TimePassed(), 0.1 + now, now)
    assert (turns.total, turns.longest_s) == (4, 0.1 + TELL_AGAIN_S)
    assert [record.getMessage() for record in caplog.records] == [
        "A:1 was busy for 100 ms with one input, and read no messages meanwhile: TimePassed",
        "A:1 was busy for 10100 ms with one input, and read no messages meanwhile: TimePassed (2 more since the last such line)",
    ]


@pytest.mark.parametrize("warning_ms", [20, 0])
def test_a_running_member_tells_what_it_was_busy_with(
    warning_ms: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, "phalanx.member")
    monkeypatch.setattr(
        "phalanx.runtime.statistics.slow_turns.TELL_AGAIN_S", 0.0
    )  # on a slow machine it is not the first

    async def main() -> int:
        member = await phalanx.start_member(phalanx.Config(port=0, slow_turn_warning_ms=warning_ms))
        try:
            handle = member.node.handle

            def slowly(event: Any, now: int) -> Any:
                if isinstance(event, Call):
                    time.sleep(0.05)
                return handle(event, now)

            member.node.handle = slowly  # type: ignore[method-assign]
            await member.map("m").get("k")
            return member.slow_turns.total
        finally:
            await member.stop(drain=False)

    total = asyncio.run(main())
    told = [record.getMessage() for record in caplog.records if "busy" in record.getMessage()]
    assert (total > 0, any("Get, map 'm' of this program" in line for line in told)) == (bool(warning_ms),) * 2


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(UsageError, match="slow_turn_warning_ms: -1 must not be negative; 0 turns it off"):
        phalanx.Config(slow_turn_warning_ms=-1)
