"""One door for what changes a replica: owner and backups apply it by one function, and the short way past it is no other."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import phalanx.grid
from phalanx.codec.hashing import scan_position
from phalanx.common.ids import Millis
from phalanx.grid.replica import mutation
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replica.mutation import apply
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.machine.inputs import Received
from phalanx.wire import messages as m
from support.harness import CLIENT, KEY, MAP, TEXT, Cluster

VALUE, OTHER = TEXT + b"value", TEXT + b"other"
GRID = Path(phalanx.grid.__file__).parent


def replica_at(c: Cluster, name: str) -> Replica:
    """The replica of the one partition that a member holds."""
    grid = c.nodes[name].grid
    owned = grid.ownership.find_owned(0)
    return owned.replica if owned is not None else grid.follower.replicas[0]


@pytest.mark.rows("DL-83")
@pytest.mark.parametrize("kind", [m.ReplicatePut, m.ReplicateRemove, m.ReplicateUpdates, m.ReplicateClear])
def test_a_bug_in_how_a_mutation_is_applied_is_seen_at_the_owner_and_at_its_backup(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    def apply_twisted(replica: Replica, mutation: Any, now: Millis) -> tuple[()]:
        replica.map("twisted").put(KEY, b"\0" * 8 + OTHER, 0, now)
        return ()

    c = Cluster("AB")
    c.assign(rows=["AB"])
    c.put("A", KEY, VALUE)
    c.settle()
    monkeypatch.setitem(mutation.APPLY, kind, apply_twisted)
    asked: dict[object, tuple[Callable[..., m.Request], tuple[Any, ...]]] = {
        m.ReplicatePut: (m.Put, (MAP, KEY, OTHER, 0)),
        m.ReplicateRemove: (m.Remove, (MAP, KEY)),
        m.ReplicateUpdates: (m.UpdateWhere, (MAP, 0, 1, b"", "get_and_put", [OTHER])),
        m.ReplicateClear: (m.ClearPartitions, (MAP, [0])),
    }
    make, fields = asked[kind]
    write = c.ask("A", make, *fields)
    c.settle()
    assert c.is_done(write)
    for name in "AB":
        assert replica_at(c, name).maps.keys() == {MAP, "twisted"}
        assert c.entries(name) == {KEY: VALUE}


def test_an_outcome_is_remembered_alike_with_backups_and_without() -> None:
    for names in ("A", "AB"):
        c = Cluster(names)
        c.assign(rows=[names])
        for number in (7, 8):
            c.feed("A", Received(CLIENT, m.PutIfAbsent(number, MAP, KEY, VALUE, 0)))
            c.settle()
        for name in names:
            outcomes = replica_at(c, name).deduplication
            assert outcomes.find(CLIENT, 7) is None, "stored: there was no value before"


@pytest.mark.rows("EL-63")
def test_a_backup_knows_what_a_merged_value_may_cover_when_it_becomes_the_owner() -> None:
    """1. Sides merge: a value that ends soon is taken in. 2. Its owner dies. 3. The value ends, by the clock of the former
    backup. A third side may have what the value stood over: unless a tombstone is left, that comes back."""
    replicas = [Replica(), Replica()]
    merged = m.ReplicatePut(0, 0, 1, MAP, [KEY], [b"\0" * 7 + b"\5" + VALUE], 1_000, merged=True)
    for replica in replicas:
        apply(replica, merged, 0)
    for replica in replicas:
        assert replica.maps[MAP].end_stamps([KEY]) == [5]


# --- the short way -------------------------------------------------------------------------------------------------------


def put_by_the_door(
    leader: Leader,
    owned: OwnedPartition,
    store: MapStore,
    name: str,
    key: bytes,
    stored: bytes,
    applied: Any,
    now: Millis,
) -> None:
    """What `commit_plain` stands for."""
    leader.commit(owned, m.ReplicatePut, None, now, name, [key], [stored], 0, applied)


def has_true_order(store: MapStore) -> bool:
    """Whether scans find every key, in order. An order may also be missing: it is made anew when somebody scans."""
    if store.order is None:
        return True
    found = [key for key in store.order.behind(b"") if key in store.entries]
    return found == sorted(store.entries, key=lambda key: (scan_position(key), key))


def told(replica: Replica, now: Millis) -> dict[str, Any]:
    """All that a replica knows of its maps, besides the numbers of its writes."""
    return {
        name: (
            store.entries, store.expires_at, store.tombstones, store.cleared_at, store.purged_to, store.covering,
            has_true_order(store),
            [events.read(0, events.next) for events in [replica.journals.get(name)] if events is not None],
        )
        for name, store in replica.maps.items()
    } | {"cleared": replica.cleared}  # fmt: skip


ONE, TWO = TEXT + b"1", TEXT + b"2"
keys = st.sampled_from([ONE, TWO])
steps = st.one_of(
    st.tuples(st.just("put"), keys, st.sampled_from([0, 0, 50])),
    st.tuples(st.just("remove"), keys),
    st.tuples(st.just("clear")),
    st.tuples(st.just("scan")),
    st.tuples(st.just("wait"), st.sampled_from([1, 60, 400])),
)


def play(history: list[Any], *, has_journal: bool) -> dict[str, Any]:
    c = Cluster("A", maps={MAP: {"journal_capacity": 50}} if has_journal else {})
    c.assign(rows=["A"])
    for step, *fields in history:
        if step == "put":
            c.put("A", fields[0], VALUE + b"%d" % len(fields), fields[1])
        elif step == "remove":
            c.ask("A", m.Remove, MAP, *fields)
        elif step == "clear":
            c.ask("A", m.ClearPartitions, MAP, [0])
        elif step == "scan":
            c.ask("A", m.ScanPartition, MAP, 0, 1, b"", 10)
        else:
            c.advance(fields[0])
    return told(replica_at(c, "A"), c.now)


@given(history=st.lists(steps, max_size=14), has_journal=st.booleans())
@example(history=[("put", ONE, 0), ("remove", ONE), ("put", ONE, 0)], has_journal=False)
@example(history=[("put", ONE, 0), ("scan",), ("put", TWO, 0)], has_journal=False)
@example(history=[("put", ONE, 50), ("put", ONE, 0), ("wait", 400)], has_journal=False)
@example(history=[("put", ONE, 50), ("wait", 60), ("put", ONE, 0)], has_journal=True)
@example(history=[("put", ONE, 50), ("scan",), ("wait", 60), ("put", ONE, 0)], has_journal=True)
def test_the_short_way_of_a_put_ends_where_the_door_does(history: list[Any], has_journal: bool) -> None:
    short = play(history, has_journal=has_journal)
    with patch.object(Leader, "commit_plain", put_by_the_door):
        assert play(history, has_journal=has_journal) == short


# --- nothing beside it ---------------------------------------------------------------------------------------------------

NUMBERS = {"mutation.py": {"apply"}, "leader.py": {"commit_plain"}, "replica.py": {"__init__"}}
"""Where the number of a replica's last mutation is set."""
NOTES = {"mutation.py": {"note_outcome"}, "entry_writer.py": {"put_plain"}}
"""Where an outcome is noted: besides, where a put goes the short way."""


def found_in(is_wanted: Any) -> dict[str, set[str]]:
    """The functions in which a node of the syntax tree is wanted, by file."""
    found: dict[str, set[str]] = {}
    for path in sorted(GRID.rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef) and any(map(is_wanted, ast.walk(function))):
                found.setdefault(path.name, set()).add(function.name)
    return found


def test_nothing_else_numbers_a_mutation() -> None:
    def sets_number(node: ast.AST) -> bool:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
        )
        return any(isinstance(target, ast.Attribute) and target.attr == "seq" for target in targets)

    assert found_in(sets_number) == NUMBERS


def test_nothing_else_writes_in_native_code() -> None:
    """The native versions of `commit_plain` number what they write."""
    source = GRID.parent
    importers = {
        path.name
        for path in sorted(source.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "Commands" and "NATIVE" in ast.unparse(node.value)
    }
    assert importers == {"leader.py"}


def test_nothing_else_notes_an_outcome() -> None:
    def notes(node: ast.AST) -> bool:
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("note", "note_next")
            and isinstance(node.func.value, ast.Attribute)
            and node.func.value.attr == "deduplication"
        )

    assert found_in(notes) == NOTES
