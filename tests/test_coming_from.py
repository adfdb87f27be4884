"""The page for those who come from other clients names methods that exist, theirs and ours."""

import re

import pytest
import redis
from hazelcast.client import HazelcastClient
from hazelcast.cp import CPSubsystem
from hazelcast.proxy.map import Map

import phalanx
from support.roots import DOCS

OBJECTS: dict[str, dict[str, type]] = {
    "redis-py": {"r": redis.Redis},
    "hazelcast-python-client": {"map": Map, "client": HazelcastClient, "client.cp_subsystem": CPSubsystem},
    "Phalanx": {"map": phalanx.SyncMap, "grid": phalanx.Client, "AsyncMap": phalanx.AsyncMap},
}
CALL = re.compile(r"(?<![\w.])((?:[A-Za-z]\w*\.)+)(\w+)(?=[`(,) ]|$)")


def calls_of() -> list[tuple[str, str, str]]:
    """Who has a call by the head of its column, on which object, and which."""
    found, heads = [], ["", "", ""]
    for line in (DOCS / "coming-from.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if cells[:1] and cells[0] in OBJECTS:
            heads = [cells[0], "Phalanx", "Phalanx"]
        elif cells:
            for head, cell in zip(heads, cells, strict=True):
                for code in re.findall(r"`([^`]+)`", cell):
                    found += [(head, owner.rstrip("."), name) for owner, name in CALL.findall(code)]
    return found


CALLS = [call for call in calls_of() if call[1] in OBJECTS[call[0]]]


def test_the_tables_are_read() -> None:
    assert len(CALLS) > 130
    assert {head for head, _, _ in CALLS} == set(OBJECTS)
    others = {call for call in calls_of() if call[1] not in OBJECTS[call[0]]} - {
        ("hazelcast-python-client", "client", "sql")
    }
    assert {owner for _, owner, _ in others} <= {"phalanx", "lock"}, others


@pytest.mark.parametrize("call", sorted(set(CALLS)), ids=".".join)
def test_a_call_that_the_page_names_exists(call: tuple[str, str, str]) -> None:
    head, owner, name = call
    assert hasattr(OBJECTS[head][owner], name)
