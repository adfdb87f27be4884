"""What `memory_limit` means, how much memory the system gives a process, and what a process says of its own."""

import mmap
from pathlib import Path
from typing import Any

import pytest

from phalanx.common.errors import UsageError
from phalanx.machine.inputs import MemoryMeasured
from phalanx.runtime.settings.config import Config
from phalanx.runtime.settings.memory_limit import (
    LEAST_BYTES,
    MemoryLimits,
    available_memory,
    check_memory_limit,
    limits_of,
    shared_limit,
)
from phalanx.runtime.statistics.memory_use import MemoryUse, resident_bytes

GIB = 1 << 30


@pytest.mark.parametrize(
    ("given", "bytes_of_10_gib"),
    [
        (2 * GIB, 2 * GIB), ("2GiB", 2 * GIB), ("2 gib", 2 * GIB), ("1.5GiB", 3 * GIB // 2), ("500MB", 500_000_000),
        (str(GIB), GIB), ("80%", 8 * GIB), ("12.5 %", 5 * GIB // 4), (0, 0), ("0", 0),
    ],
)  # fmt: skip
def test_a_limit_is_bytes_a_size_or_a_part(given: int | str, bytes_of_10_gib: int) -> None:
    assert limits_of(given, 10 * GIB).limit == bytes_of_10_gib
    assert Config(memory_limit=given).memory_limit == given


@pytest.mark.parametrize(
    "given", ["", "much", "-1", "2 G i B", "0%", "101%", "1e9", "80%%", True, 1.5, None, -5, LEAST_BYTES - 1, "9KB"]
)
def test_what_is_no_limit_is_refused_by_its_name(given: Any) -> None:
    with pytest.raises(UsageError, match=r"memory_limit: .*such as '2GiB'"):
        check_memory_limit(given)
    with pytest.raises(UsageError, match="memory_limit"):
        Config(memory_limit=given)


def test_what_is_free_inside_of_a_process_may_be_above_its_limit_but_not_above_what_the_system_allows() -> None:
    assert limits_of("80%", 100 * GIB) == MemoryLimits(80 * GIB, 95 * GIB)
    assert limits_of(2 * GIB, 100 * GIB) == MemoryLimits(2 * GIB, 3 * GIB)
    assert limits_of("99%", 100 * GIB) == MemoryLimits(99 * GIB, 99 * GIB)
    assert limits_of(2 * GIB, 0) == MemoryLimits(2 * GIB, 3 * GIB)
    assert limits_of(0, GIB) == limits_of("80%", 0) == MemoryLimits(0, 0)


def test_members_on_one_machine_share_a_part_of_it_and_no_size() -> None:
    assert limits_of(shared_limit("80%", 3), 30 * GIB).limit == pytest.approx(8 * GIB, rel=1e-6)
    assert shared_limit("2GiB", 3) == "2GiB"


def written(place: Path, text: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="ascii")


@pytest.mark.parametrize(
    ("process", "files", "limit"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "300\n", "memory.max": "400\n"}, 300),
        ("0::/a/b\n", {"a/b/memory.max": "200\n", "a/memory.max": "300\n"}, 200),
        ("0::/../b\n", {"memory.max": "100\n"}, 100),
        ("5:cpu,memory:/c\n0::/\n", {"memory/c/memory.limit_in_bytes": "150\n"}, 150),
        ("5:memory:/seen/from/outside\n", {"memory/memory.limit_in_bytes": "160\n"}, 160),
        ("5:cpu:/c\n", {"memory/c/memory.limit_in_bytes": "150\n"}, None),
        ("0::/\n", {"memory.max": "nonsense"}, None),
        (None, {}, None),
    ],
)
def test_a_process_may_have_what_its_groups_allow_or_the_machine(
    tmp_path: Path, process: str | None, files: dict[str, str], limit: int | None
) -> None:
    groups, own = tmp_path / "cgroup", tmp_path / "own"
    for name, text in files.items():
        written(groups / name, text)
    if process is not None:
        written(own, process)
    machine = available_memory(tmp_path / "none", tmp_path / "none")
    assert machine > LEAST_BYTES
    assert available_memory(groups, own) == (machine if limit is None else limit)


def test_a_process_says_what_it_has_in_memory() -> None:
    before = resident_bytes()
    with mmap.mmap(-1, 64 << 20) as held:  # Pages of its own: a bytearray may lie in what earlier tests gave back.
        for page in range(0, len(held), mmap.PAGESIZE):
            held[page] = 1
        assert resident_bytes() - before > 48 << 20


def test_a_system_that_does_not_say_so_has_no_limit() -> None:
    use = MemoryUse(limits_of("80%", GIB), read=lambda: 0)
    assert use.measure() == MemoryMeasured(0, 0, 0, 0)
    assert not use.trim(0, 10 * GIB)


def test_pages_are_given_back_where_much_is_free_near_the_limit_and_rarely() -> None:
    use = MemoryUse(MemoryLimits(GIB, 2 * GIB), read=lambda: GIB)
    assert not use.trim(0, GIB - 1), "it is not near its limit"
    assert not use.trim(GIB, GIB), "nothing is free"
    use.trim(GIB // 2, GIB)
    assert not use.trim(GIB // 2, GIB), "it was just done"
