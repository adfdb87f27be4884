"""Event logs judged by this process alone: what was planted is found, what is no event is told, and as Spark would."""

import json
import re
from pathlib import Path
from typing import Any, get_type_hints

import pyarrow as pa
import pytest

from audit.test_planted import BROKEN, CLEAN
from phalanx.common.errors import UsageError
from phalanx.wire.events import EVENT_KINDS
from phalanx_spark.audit import findings, run
from phalanx_spark.audit.arrow_types import arrow_schema
from phalanx_spark.audit.local_audit import audit_locally
from phalanx_spark.audit.local_engine import LocalEngine
from phalanx_spark.audit.local_reading import is_little, judge
from phalanx_spark.audit.reading import FIELDS
from phalanx_spark.audit.verdicts import Report
from support.traces import Plant, Planted, find_seed, write_logs

MOST_TOLD = 60

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("planted")
    for plant in BROKEN:
        write_logs(plant(Planted(plant.__name__)), folder / plant.__name__, cluster=plant.__name__)
    for name, (profile, wanted) in CLEAN.items():
        write_logs(Planted(name, find_seed(profile, wanted), profile).rows(), folder / name, cluster=name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(findings, "MOST_FINDINGS", MOST_TOLD)
        patch.setattr(run, "MOST_FINDINGS", MOST_TOLD)
        return audit_locally(str(folder), with_charts=True, history="a split and a merge")


def broken_in(report: Report, history: str) -> set[str]:
    return {each.property for each in report.verdicts for found in each.findings if found.history == history}


@pytest.mark.parametrize("plant", BROKEN, ids=lambda plant: plant.__name__)
def test_what_was_planted_is_found_and_nothing_else(report: Report, plant: Plant) -> None:
    assert broken_in(report, plant.__name__) == BROKEN[plant]


@pytest.mark.parametrize("history", CLEAN)
def test_a_clean_history_passes(report: Report, history: str) -> None:
    assert broken_in(report, history) == set()


def test_charts_are_of_the_history_that_was_asked_for(report: Report) -> None:
    assert report.charts["history"] == "a split and a merge"
    assert report.charts["members"]
    assert report.charts["lists"]


EVENT = {"at": 1, "cluster": "c", "member": "m/1", "event": "WokeUp", "away_ms": 5}


@pytest.mark.parametrize(
    ("line", "bad"),
    [
        (json.dumps(EVENT), None),
        ("  ", None),
        (json.dumps({**EVENT, "before": 7, "removed": ["a"]}), None),
        ('{"at": 12, "clus', "it is not a JSON object of an event"),
        ("[1]", "it is not a JSON object of an event"),
        ("[" * 100_000, "it is not a JSON object of an event"),
        (json.dumps({**EVENT, "away_ms": "long"}), "a field has another type than the schema says"),
        (json.dumps({**EVENT, "away_ms": 2**63}), "a field has another type than the schema says"),
        (json.dumps({**EVENT, "members": ["a", 1.5]}), None),
        (json.dumps({**EVENT, "promoted": ["a"]}), "a field has another type than the schema says"),
        (json.dumps({"at": 1, "event": "WokeUp"}), "it lacks: cluster, member"),
    ],
)
def test_a_line_is_judged_as_spark_does(line: str, bad: str | None) -> None:
    found = judge(line)
    assert found.get("bad") == bad
    assert (found["text"] is None) == (bad is None)
    if bad is None and line.strip():
        assert (found["history"], found["family"], found["away_ms"]) == ("c", "others", 5)


def test_only_little_data_of_kinds_that_this_process_reads_is_judged_here(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("x")
    assert is_little(tmp_path)
    (tmp_path / "b.jsonl.gz").write_bytes(b"")
    with (tmp_path / "b.jsonl.gz").open("r+b") as file:
        file.truncate(10_000_000)
    assert not is_little(tmp_path)
    (tmp_path / "b.jsonl.gz").unlink()
    (tmp_path / "c.jsonl.zst").write_text("x")
    assert not is_little(tmp_path)
    with pytest.raises(UsageError, match=r"c\.jsonl\.zst can only be read by Spark: --spark local\[2\]"):
        audit_locally(str(tmp_path))


def test_there_is_something_to_judge(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no event log"):
        audit_locally(str(tmp_path))
    (tmp_path / "a.jsonl").write_text("")
    with pytest.raises(UsageError, match="its 1 event logs are empty"):
        audit_locally(str(tmp_path))
    (tmp_path / "b.jsonl").write_text("none\n")
    with pytest.raises(
        UsageError, match=r"holds no event: 1 line is not one; the first of them: b\.jsonl line 1: it is not a JSON"
    ):
        audit_locally(str(tmp_path))


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("select percentile(id, 0.5) as x from {t}", [1.5]),
        ("select array_join(array('a', null), ', ', '(nobody)') as x", ["a, (nobody)"]),
        ("select if(id > {most}, 'more', 'less') as x from {t} order by id", ["less", "more"]),
        ("select explode(sequence(1, 3)) as x", [1, 2, 3]),
        ("select id as x from {t} order by id desc", [2, 1]),
    ],
)
def test_queries_mean_what_they_mean_to_spark(query: str, rows: list[Any]) -> None:
    engine = LocalEngine()
    table = engine.small([(1,), (2,)], "id int")
    assert [row.x for row in engine.sql(query, t=table, most=1).collect()] == rows
    engine.close()


def test_a_log_reaches_nothing_outside(tmp_path: Path) -> None:
    engine = LocalEngine()
    with pytest.raises(Exception, match="disabled"):
        engine.run(f"select * from read_text('{tmp_path}/*')")
    engine.close()


def test_no_event_has_a_field_of_another_type_than_the_audit_reads() -> None:
    """Its line would be told as one that is no event. Any type can be read as text."""
    for kind in EVENT_KINDS.values():
        hints = get_type_hints(kind)
        for field in arrow_schema(FIELDS):
            if field.name not in hints or pa.types.is_string(field.type):
                continue
            declared = str(hints[field.name])
            wanted = "tuple" if pa.types.is_list(field.type) else "bool" if pa.types.is_boolean(field.type) else "int"
            assert re.search(rf"\b{wanted}\b|Millis|Version", declared), (kind.__name__, field.name, declared)
            assert wanted == "tuple" or "tuple" not in declared, (kind.__name__, field.name, declared)
