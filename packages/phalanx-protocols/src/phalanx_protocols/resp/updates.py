"""Let a function of the members change the value of a key where it lives, for a command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from phalanx.common.ids import Millis
from phalanx.wire.key_requests import LifeRule
from phalanx.wire.messages import UpdateValue, ValueReply
from phalanx_protocols.resp.answers import KeyCall, Outcome
from phalanx_protocols.resp.connection import RespConnection


def update(
    c: RespConnection,
    key: bytes,
    function: str,
    arguments: list[bytes],
    answer_of: Callable[[Any], bytes],
    life_ms: Millis | None = None,
    life: LifeRule = LifeRule.ANY,
) -> Outcome:
    """Return what an update comes to: its answer at once, if no other member has to know of it. `life_ms`: None keeps it."""
    grid = c.grid
    there = None
    if life_ms is None and life is LifeRule.ANY:
        made = grid.local.update(c.map, key, function, arguments) if c.there < 0 else c.take_there()
        if not isinstance(made, int):
            return answer_of(ValueReply(0, made.result))
        there = made
    request = UpdateValue(grid.next_id(), c.map, key, function, arguments, life_ms, 0, grid.open_from, None, life)
    return KeyCall(key, request, answer_of, there)
