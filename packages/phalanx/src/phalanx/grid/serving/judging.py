"""The caller's part in a scan with conditions: members do not evaluate conditions on long values, nor on Compact objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from phalanx.codec.compact import COMPACT_PREFIX, RowsOfObjects
from phalanx.codec.rows import number_bytes, numbers, split_packed
from phalanx.common.clock import STAMP_BYTES
from phalanx.grid.serving.conditions import wanted_by
from phalanx.wire.conditions import Condition
from phalanx.wire.limits import JUDGED_BYTES
from phalanx.wire.messages import PackedReply


def judged(
    page: PackedReply, conditions: Sequence[Condition], key_parts: int, read: Callable[[bytes], Any]
) -> PackedReply:
    """Return the page without the entries whose long values, or Compact objects, do not fulfil the conditions.

    `read`: deserialises values; a value that it cannot read stays, because the reader finds that out, too.
    """
    is_short = len(page.value_data) <= JUDGED_BYTES or max(numbers(page.value_sizes)) <= JUDGED_BYTES
    if is_short and COMPACT_PREFIX not in page.value_data:
        return page
    wanted = wanted_by(conditions, key_parts, judge_all=True)
    keys, values = split_packed(page.key_data, page.key_sizes), split_packed(page.value_data, page.value_sizes)

    rows = RowsOfObjects()

    def is_wanted(key: bytes, value: bytes) -> bool:
        if value[STAMP_BYTES : STAMP_BYTES + len(COMPACT_PREFIX)] == COMPACT_PREFIX:
            return wanted(key, value[:STAMP_BYTES] + rows.row(value[STAMP_BYTES:], read))
        return len(value) <= JUDGED_BYTES or wanted(key, value)

    chosen = [place for place, value in enumerate(values) if is_wanted(keys[place], value)]
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
