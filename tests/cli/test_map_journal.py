"""Journals in a real cluster: begun and looked at from the command line, and followed by a client while members crash."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from phalanx.client.blocking.journal import Journal, JournalEvent, Position
from phalanx.codec.values import from_data, from_key_data
from phalanx.common.errors import JournalLineageChanged, JournalNotEnabled, JournalOverrun, UsageError
from support.commands import Ask, Command
from support.processes import Cluster, wait_for


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("three"), "followed")
    try:
        cluster.start(3)
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def ask(phalanx_command: Command, three: Cluster) -> Ask:
    """Runs a command against the last member; its lines, or what it said when it failed."""

    def run(*arguments: object, status: int = 0) -> Any:
        result = phalanx_command(*arguments, "--at", three.members[-1].address, "--cluster", three.name)
        assert result.exit_code == status, (result.stdout, result.stderr)
        return result.stderr if status else result.stdout.splitlines()

    return run


def test_a_map_is_followed_from_the_command_line(ask: Ask) -> None:
    told_off = ask("map", "events", "orders", status=2)
    assert "map 'orders' has no journal (no map has one)" in told_off
    assert "begin one with 'phalanx map journal orders" in told_off
    assert ask("map", "journal", "orders") == ["orders\tjournal off"]
    assert ask("map", "journal", "orders", "--capacity", "50") == [
        "orders\tjournal 50 events or 16777216 bytes in a partition"
    ]
    for value in ("1", "2"):
        ask("map", "put", "orders", "a", value)
    ask("map", "remove", "orders", "a")
    told = [json.loads(line) for line in ask("map", "events", "orders", "--json")]
    assert [(one["event"], one["key"], one["value"], one["old_value"]) for one in told] == [
        ("added", "a", 1, None),
        ("updated", "a", 2, 1),
        ("removed", "a", None, 2),
    ]
    assert [one["sequence"] for one in told] == [0, 1, 2]
    assert len(ask("map", "events", "orders", "--limit", "2")) == 2
    assert ask("map", "events", "orders", "--from", "now") == []
    assert ask("map", "journal", "orders", "--max-bytes", "5000", "--json") == [
        '{"map":"orders","capacity":50,"max_bytes":5000}'
    ]
    assert "no journal: begin one with --capacity" in ask("map", "journal", "other", "--max-bytes", "5", status=2)
    assert "map 'other' has no journal (maps with a journal are: 'orders')" in ask("map", "events", "other", status=2)
    assert "a journal is of one map" in ask("map", "journal", "o*", "--capacity", "5", status=2)


def read_all(journal: Journal, at: dict[int, Position]) -> list[JournalEvent]:
    """What there is from these positions on; they move behind it."""
    found: list[JournalEvent] = []
    for partition in journal.partitions():
        while (page := journal.read(partition, *at[partition], limit=7)).events:
            found += page.events
            at[partition] = page.next
    return found


def test_a_reader_gets_each_write_once_whoever_is_killed(ask: Ask, three: Cluster) -> None:
    ask("map", "journal", "prices", "--capacity", "1000")
    written, got = [], []
    with three.client() as grid:
        prices, journal = grid.map("prices"), grid.journal("prices")
        at = {partition: bounds.begin_position for partition, bounds in journal.bounds().items()}
        begin = dict(at)
        for number in range(150):
            prices.put(f"k{number % 20}", number)
            written.append((f"k{number % 20}", number))
            if number == 60:
                three.kill(three.members[0])
            if number % 10 == 0:
                got += read_all(journal, at)
        three.wait_redundant()
        got += wait_for(lambda: read_all(journal, at), "the rest is read") if len(got) < len(written) else []

        def read_on() -> bool:
            if len(got) >= len(written):
                return True
            got.extend(read_all(journal, at))
            return False

        wait_for(read_on, "all is read")
        of_key = {f"k{key}": [n for k, n in written if k == f"k{key}"] for key in range(20)}
        for key, numbers in of_key.items():
            events = [event for event in got if from_key_data(event.key) == key]
            assert [from_data(event.value) for event in events if event.value is not None] == numbers
            assert [from_data(event.old_value) if event.old_value else None for event in events] == [
                None,
                *numbers[:-1],
            ]
        again = [e for p in at for page in journal.read_range(p, begin[p], at[p]) for e in page]
        assert sorted(again) == sorted(got)


def test_what_a_reader_cannot_have_is_said_in_words(ask: Ask, three: Cluster) -> None:
    ask("map", "journal", "short", "--capacity", "2")
    with three.client() as grid:
        short, journal = grid.map("short"), Journal("short", grid)
        for number in range(5):
            short.put("k", number)
        (partition, bounds) = next((p, b) for p, b in journal.bounds().items() if b.end)
        with pytest.raises(
            JournalOverrun, match=r"3 events of partition \d+ of map 'short' from event 0 on"
        ) as overrun:
            journal.read(partition, bounds.lineage, 0)
        assert overrun.value.missed == 3
        assert [from_data(e.value) for e in journal.read(partition, *bounds.begin_position).events if e.value] == [3, 4]
        with pytest.raises(JournalLineageChanged, match="read the map as it is now"):
            journal.read(partition, bounds.lineage + 1, 4)
        with pytest.raises(JournalLineageChanged, match="read the map as it is now"):
            next(journal.read_range(partition, bounds.begin_position, Position(bounds.lineage + 1, bounds.end)))
        with pytest.raises(JournalLineageChanged, match="read the map as it is now"):
            next(journal.read_range(partition, Position(bounds.lineage + 1, bounds.oldest), bounds.end_position))
        with pytest.raises(JournalLineageChanged) as void:
            journal.read(partition, bounds.lineage, 9)
        assert void.value.void == 4
        with pytest.raises(UsageError, match="there is no partition 100000"):
            journal.read(100_000, 0, 0)
        with pytest.raises(JournalNotEnabled, match="phalanx map journal unknown --capacity"):
            Journal("unknown", grid).bounds()
