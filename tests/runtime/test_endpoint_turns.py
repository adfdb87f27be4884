"""Outcomes of what endpoints have asked for are handed over within turns: to make an answer of one can take long."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from phalanx.runtime.endpoints import endpoint_connections
from phalanx.runtime.endpoints.endpoint_connections import EndpointConnections


class Connection:
    """A connection that takes 3 ms for each outcome."""

    def __init__(self, clock: list[float]) -> None:
        self.clock = clock
        self.taken: list[int] = []

    def run_answered(self, number: int, outcome: Any) -> None:
        self.clock[0] += 0.003
        self.taken.append(number)

    def end_turn(self) -> None:
        self.taken.append(-1)


def test_outcomes_that_take_long_are_handed_over_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    later: list[Callable[[], None]] = []
    monkeypatch.setattr(endpoint_connections, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    loop = SimpleNamespace(call_soon=lambda call, function: later.append(function))
    group: Any = SimpleNamespace(loop=loop, call=None)
    nothing: Any = None
    connections = EndpointConnections(nothing, nothing, group, nothing, {})
    connection: Any = Connection(clock)
    for number in range(5):
        connections.answer_later(connection, number, None)
    turns = 0
    while later:
        later.pop(0)()
        turns += 1
    assert connection.taken == [0, 1, -1, 2, 3, -1, 4, -1]
    assert turns == 3
