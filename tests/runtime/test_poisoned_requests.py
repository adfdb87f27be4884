"""A request on which evaluation fails, asked of real members: all of them go on, with all data, and the caller is told why (PX-48)."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

import phalanx
from phalanx.testing import LocalCluster


@dataclass
class Unreadable:
    """What a program's function returns, and what raises when it is serialised."""

    x: int

    def __getattr__(self, name: str) -> object:
        raise ZeroDivisionError


def returns_what_cannot_be_read(value: object) -> object:
    made = Unreadable(1)
    del made.x
    return phalanx.Update(made)


def nested(depth: int) -> Any:
    found: Any = {"leaf": 1}
    for _ in range(depth):
        found = {"a": found}
    return found


def test_no_member_ends_and_the_caller_is_told_the_class() -> None:
    with LocalCluster(3, backup_count=1, functions=[returns_what_cannot_be_read]) as cluster, cluster.client() as grid:
        entries = grid.map("m")
        entries.put_all({f"k{number}": [1, 2, number] for number in range(200)})
        with pytest.raises(phalanx.UsageError, match="failed with ZeroDivisionError on what it was given"):
            entries.update("k7", "returns_what_cannot_be_read")
        assert entries.update("k7", "add_to_set", Decimal("sNaN")) is True
        assert entries.update("k7", "discard", Decimal("sNaN")) is True
        with pytest.raises(phalanx.UsageError, match="have no order"):
            entries.update("k7", "max", Decimal("sNaN"))
        with pytest.raises(phalanx.UpdateFailed, match="failed with ZeroDivisionError"):
            entries.update_where("true", "returns_what_cannot_be_read")
        entries["long"] = 1 << 8 * 256 * 1024
        with pytest.raises(phalanx.UsageError, match="an int of 262,144 bytes and a Decimal: up to 4,096 are compared"):
            entries.update("long", "max", Decimal(1))
        with pytest.raises(phalanx.UsageError, match="nested deeper than 200"):
            entries.update("deep", "merge", nested(3_000))
        assert len(cluster) == 3
        assert entries.get_all([f"k{number}" for number in range(200)]) == {f"k{n}": [1, 2, n] for n in range(200)}
