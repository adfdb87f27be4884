"""The caller's part in a scan with conditions: members do not evaluate conditions on long values."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from phalanx.codec.rows import number_bytes, numbers, split_packed
from phalanx.grid.serving.conditions import wanted_by
from phalanx.wire.conditions import Condition
from phalanx.wire.limits import JUDGED_BYTES
from phalanx.wire.messages import PackedReply


def judged(page: PackedReply, conditions: Sequence[Condition], key_parts: int) -> PackedReply:
    """Return the page without the entries whose long values do not fulfil the conditions."""
    if len(page.value_data) <= JUDGED_BYTES or max(numbers(page.value_sizes)) <= JUDGED_BYTES:
        return page
    wanted = wanted_by(conditions, key_parts, judge_all=True)
    keys, values = split_packed(page.key_data, page.key_sizes), split_packed(page.value_data, page.value_sizes)
    chosen = [place for place, value in enumerate(values) if len(value) <= JUDGED_BYTES or wanted(keys[place], value)]
    keys, values = [keys[place] for place in chosen], [values[place] for place in chosen]
    ttls = numbers(page.ttls, "q")
    return msgspec.structs.replace(
        page,
        key_data=b"".join(keys),
        key_sizes=number_bytes(map(len, keys)),
        value_data=b"".join(values),
        value_sizes=number_bytes(map(len, values)),
        ttls=number_bytes([ttls[place] for place in chosen], "q") if ttls else b"",
    )
