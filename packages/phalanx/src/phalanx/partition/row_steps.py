"""The steps of one partition from its row to its target, and the row after a step (`planner` has the rules)."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

import msgspec

from phalanx.common.ids import MemberId
from phalanx.common.migration import Migration, MigrationKind
from phalanx.common.table import Slots
from phalanx.partition.planner import apply_migration, plan_exchange, plan_migrations, prioritize

REMEMBERED_PLANS = 16_384
"""Of how many pairs of row and target the steps are kept: the same ones are examined after each migration that ends."""


@lru_cache(REMEMBERED_PLANS)
def plan_steps(current: Slots, target: Slots) -> tuple[Migration[MemberId], ...]:
    """Return the migrations, in order, that bring a partition to its target (DL-62 to DL-82).

    If the owner and a backup are to change places, and the planner cancels that as a cycle, return one exchange: no
    replica is missing meanwhile.
    """
    length = max(len(current), len(target))
    now = [*current, *[None] * (length - len(current))]
    then = [*target, *[None] * (length - len(target))]
    steps = prioritize(plan_migrations(now, then))
    if not steps:
        exchange = plan_exchange(now, then)
        return (exchange,) if exchange is not None else ()
    return tuple(steps)


def keeping_leavers(
    slots: Slots, step: Migration[MemberId], backups: int, leaving: Collection[MemberId]
) -> Migration[MemberId]:  # fmt: skip
    """Return the step of a row, in which no member that leaves gives its replica up, and one other member alone has one then.

    Where that one has a replica already, they exchange indexes; where the leaver has the only one, it becomes a backup, unless
    there are to be none (`backups`): then a crash loses data in any case. What it holds then is cleared with all else that it holds
    (`Migrations.on_ready`).
    """
    if step.source not in leaving:
        return step
    if step.kind is MigrationKind.SHIFT_UP:
        kind, colder = MigrationKind.SHIFT_UP_DOWN, step.destination_current_index
    elif step.kind is MigrationKind.MOVE and backups and slots == (step.source,):
        kind, colder = MigrationKind.SHIFT_DOWN, 1
    else:
        return step
    return msgspec.structs.replace(step, kind=kind, source_new_index=colder)


def row_after(slots: Slots, step: Migration[MemberId]) -> Slots:
    """Return the row after the step, without holes at its end."""
    length = max(len(slots), step.destination_new_index + 1, step.source_new_index + 1)
    row: list[MemberId | None] = apply_migration([*slots, *[None] * (length - len(slots))], step)
    while row and row[-1] is None:
        row.pop()
    return tuple(row)
