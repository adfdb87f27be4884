"""Lines that are read without Spark are those that Spark would read, with the numbers that they have in their files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from phalanx_spark.audit.reading import Reading, files_here, read_events
from phalanx_spark.audit.scratch import Scratch, scratch

pytestmark = pytest.mark.timeout(900)


def event(at: int, name: str = "Joined", **fields: object) -> str:
    return json.dumps({"at": at, "cluster": "c", "member": "10.0.0.1:5701/a", "event": name} | fields)


def told(reading: Reading) -> list[tuple[object, ...]]:
    rows = reading.events.select(
        "log", "line", "at", "event", "family", "before", "removed", "members", "history"
    ).collect()
    return sorted(tuple(row) for row in rows)


def both(spark: SparkSession, folder: Path) -> tuple[list[tuple[object, ...]], Reading]:
    """What is read here, after it is seen to be what Spark reads."""
    with scratch(spark, str(folder)) as kept:
        here = read_events(kept, str(folder))
        rows = told(here)
    with scratch(spark, str(folder)) as kept:
        by_spark = read_events(Scratch(spark, str(kept.here)), str(folder))
        assert [row[1:] for row in rows] == [row[1:] for row in told(by_spark)]
    assert here.bad == by_spark.bad
    assert (here.files, here.count, here.bad_count) == (by_spark.files, by_spark.count, by_spark.bad_count)
    return rows, here


def test_bad_lines_among_many_are_numbered_and_cost_no_good_one(spark: SparkSession, tmp_path: Path) -> None:
    lines = [event(at, "TableInstalled" if at % 2 else "Joined", view_version=at) for at in range(1, 1001)]
    lines[99] = '{"at": 100, "clus'
    lines[499] = ""
    lines[500] = event(501) + event(501)
    lines[700] = event(701, view_version="seven")
    lines[701] = event(702, text="späť")
    (tmp_path / "a.jsonl").write_text("\r\n".join(lines))

    rows, reading = both(spark, tmp_path)
    # Of two objects in a line Spark reads the first.
    assert [row[1] for row in rows] == [n for n in range(1, 1001) if n not in (100, 500, 701)]
    assert all(row[1] == row[2] for row in rows)
    assert [each.line for each in reading.bad] == [100, 701]


def test_a_field_of_another_type_in_another_kind_costs_nothing(spark: SparkSession, tmp_path: Path) -> None:
    lines = [
        event(1, "PartitionsDivided", before=11, after=22),
        event(2, "ViewAccepted", before="unknown"),
        event(3, "MemberRemoved", removed="10.0.0.2:5701/b"),
        event(4, "ViewInstalled", members=["10.0.0.1:5701/a"], view_version=1),
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(line.replace(": ", ":") for line in lines) + "\n")

    rows, _ = both(spark, tmp_path)
    assert [row[5] for row in rows] == ["11", "unknown", None, None]
    assert [row[4] for row in rows] == ["others", "others", "others", "lists"]


def test_what_stands_before_a_damage_is_read_and_the_damage_is_told(spark: SparkSession, tmp_path: Path) -> None:
    packed = gzip.compress("\n".join(event(at, view_version=at * 7919 % 1009) for at in range(20_000)).encode())
    (tmp_path / "a.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "b.jsonl").write_text(event(5) + "\n")
    with scratch(spark, str(tmp_path)) as kept:
        reading = read_events(kept, str(tmp_path))
    assert 1_000 < reading.count < 20_000
    assert reading.bad_count == 0
    assert len(reading.notes) == 1
    assert reading.notes[0].startswith("a file is damaged, and what stands behind the damage is left out: ")
    assert "a.jsonl.gz" in reading.notes[0]


def test_links_that_lead_back_are_followed_once(tmp_path: Path) -> None:
    """A folder of somebody else may have many, and each of them as many again within it."""
    (tmp_path / "logs" / "a").mkdir(parents=True)
    (tmp_path / "logs" / "a" / "m.jsonl").write_text("{}\n")
    for number in range(8):
        (tmp_path / "logs" / f"b{number}").symlink_to(tmp_path / "logs")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "n.jsonl").write_text("{}\n")
    (tmp_path / "logs" / "linked").symlink_to(tmp_path / "elsewhere")
    found = files_here(tmp_path / "logs")
    assert [Path(each).name for each in found] == ["m.jsonl", "n.jsonl"]
