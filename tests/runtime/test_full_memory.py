"""Members that the kernel would end at their memory limit are filled until they refuse more: none is ended, nothing that was
acknowledged is missing, and removals make room again (PX-24, PX-25)."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.client.ask import Inquirer
from phalanx.client.blocking.sync_map import SyncMap
from phalanx.client.staging import Staging
from phalanx.codec.values import to_data, to_key_data
from phalanx.common.ids import address_of
from phalanx.runtime.process.processes import PHALANX
from support.groups import MIB, MemoryGroup, memory_groups, why_no_groups
from support.processes import Cluster, wait_for

LIMIT = 200 * MIB
"""Of each member's group. Without data a member has some 60 MiB."""
AT_ONCE = 500
FULL_WITHIN_S = 120.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    if why := why_no_groups():
        pytest.skip(why)
    with memory_groups(LIMIT, 3) as groups:
        found = Cluster(tmp_path)
        try:
            for group in groups:
                start(found, group)
            yield found
        finally:
            found.stop()


def start(cluster: Cluster, group: MemoryGroup) -> None:
    cluster.start(program=group.program(*PHALANX), options=("--partition-count", "31"))


def fill(entries: SyncMap[Any, Any], value: str, first: int) -> tuple[list[int], str]:
    """Write until the members refuse it. Return the keys that were acknowledged, and the refusal."""
    acknowledged: list[int] = []
    until = time.monotonic() + FULL_WITHIN_S
    while time.monotonic() < until:
        keys = range(first + len(acknowledged), first + len(acknowledged) + AT_ONCE)
        try:
            entries.put_all(dict.fromkeys(keys, value))
        except phalanx.PhalanxError:
            return acknowledged, refusal_of_one(entries, value)
        acknowledged += keys
    raise AssertionError(f"not full after {len(acknowledged)} entries")


def refusal_of_one(entries: SyncMap[Any, Any], value: str) -> str:
    """What a member says that has no memory for a new entry. (Another one may have.)"""
    for number in range(1_000):
        try:
            entries.put(f"one more {number}", value)
        except phalanx.GridFull as error:
            with contextlib.suppress(phalanx.GridFull):
                for each in range(number):
                    entries.remove(f"one more {each}")
            return str(error)
    raise AssertionError("a thousand more entries were taken")


def check_acknowledged(entries: SyncMap[Any, Any], keys: list[int], value: str) -> None:
    for begin in range(0, len(keys), 1_000):
        some = keys[begin : begin + 1_000]
        found = entries.get_all(some)
        assert {key for key in some if found.get(key) != value} == set(), "acknowledged, and not there"


@pytest.mark.long
def test_members_at_their_limit_refuse_and_live(cluster: Cluster) -> None:
    value = "v" * 2_000
    with cluster.client() as client:
        entries = client.map("full")
        keys, refusal = fill(entries, value, 0)
        assert "of its memory limit of 160.0 MiB" in refusal
        assert "remove entries, add members, or raise memory_limit" in refusal
        assert len(keys) > 10_000
        time.sleep(2.0)  # and writes on their way, copies and the like end nobody
        for _ in range(200):
            with contextlib.suppress(phalanx.GridFull, phalanx.IndeterminateWrite):
                entries.put_all({f"more {key}": value for key in range(AT_ONCE)})
        assert [member.process.poll() for member in cluster.members] == [None] * 3, "no member was ended"
        check_acknowledged(entries, keys, value)
        entries.put(keys[0], value)  # as long, or shorter: that is no growth
        entries.put(keys[0], value[:-1])
        for member in cluster.members:
            with Inquirer(member.address, cluster=cluster.name) as inquirer:
                told = inquirer.safety()
                assert 0 < told.memory_used <= told.memory_limit * 1.1, address_of(inquirer.member())

        for key in range(AT_ONCE):
            entries.remove(f"more {key}")
        with cluster.client(call_timeout_s=1.0) as job:
            attempt = Staging(job, "full", "job").attempt("one")
            rows = [to_key_data(f"staged {key}") for key in range(AT_ONCE)]
            with pytest.raises((phalanx.GridFull, phalanx.IndeterminateWrite), match="of its memory limit of"):
                attempt.put_rows(rows, [to_data(value)] * AT_ONCE)

        removed, kept = keys[: len(keys) // 2], keys[len(keys) // 2 :]
        for key in removed:
            entries.remove(key)

        def accepts() -> bool:
            try:
                entries.put("again", value)
            except phalanx.GridFull:
                return False
            return True

        wait_for(accepts, "members accept writes again after removals")
        again, _ = fill(entries, value, len(keys))
        assert len(again) > len(removed) // 2
        assert [member.process.poll() for member in cluster.members] == [None] * 3
        check_acknowledged(entries, kept + again, value)
        entries.clear()
        wait_for(accepts, "members accept writes again after a clear")
