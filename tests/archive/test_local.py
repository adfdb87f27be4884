"""Little data into Parquet files and back by one process: no Spark, no Java; and what goes wrong there."""

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer.testing

from phalanx.cli.main import app
from phalanx.client.schemas import change_schema
from phalanx.codec.values import from_data
from phalanx.common.backups import BackupCount
from phalanx.common.errors import UsageError
from phalanx.common.map_schema import Column, ColumnType, IntType, MapSchema, TextType, make_schema
from phalanx.common.map_settings import MapChange, Protection
from phalanx_spark.archive import ENTRY_SCHEMA, IfExists, Restored, export_maps, read_manifest, restore_maps
from phalanx_spark.archive.exporting import Source
from support.archives import ENTRIES, altered, change, settings, source_of
from support.commands import Command
from support.processes import Cluster, wait_for
from support.roots import SOURCES


def schema_of(name: str, kind: ColumnType) -> MapSchema:
    return make_schema((Column("id", TextType()), Column(name, kind)), ("id",))


PRICES, STOPS = schema_of("price", IntType(64)), schema_of("stops", IntType(32))
WITHOUT_SPARK = (
    "import sys; sys.modules.update(dict.fromkeys(['pyspark', 'py4j'])); from phalanx.cli.main import app; app()"
)


def command(*arguments: str, limit_bytes: int = 0) -> subprocess.CompletedProcess[str]:
    """The command where no Spark is installed and no Java found; `limit_bytes`: of the longest file that it may write."""
    limit: Callable[[], None] | None = None
    if limit_bytes:
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))  # noqa: E731
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, *arguments], capture_output=True, text=True, timeout=100, check=False,
        env={"PATH": "/nowhere", "PYTHONPATH": os.pathsep.join(map(str, SOURCES))}, preexec_fn=limit,
    )  # fmt: skip


@pytest.fixture
def phalanx_command() -> Callable[..., typer.testing.Result]:
    """Commands called in this process."""
    runner = typer.testing.CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"})
    return lambda *arguments: runner.invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def archive(one: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """By the command: three maps, one with settings of its own."""
    with one.client() as grid:
        grid.map("all kinds/✓").put_all(ENTRIES)
        grid.map("mortal").put_all({n: n for n in range(100)}, ttl=1_000)
        grid.map("mortal").put_all({n: n for n in range(100, 150)})
        grid.map("settled")["k"] = "v"
    change(one, "settled", MapChange(BackupCount(0, 2), Protection(minimum=1), "put-if-absent"))
    folder = tmp_path_factory.mktemp("archives") / "new" / "one"
    done = command("export", str(folder), "--at", one.addresses, "--cluster", "one")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"all kinds/✓\t{len(ENTRIES):,} entries",
        "mortal\t150 entries",
        "settled\t1 entry",
    ]
    return folder


def test_a_whole_grid_comes_back_in_a_cluster_of_another_size_without_spark(
    one: Cluster, other: Cluster, archive: Path
) -> None:
    done = command("restore", str(archive), "--at", other.addresses, "--cluster", "other", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "all kinds/✓": {"entries": len(ENTRIES), "over": 0}, "mortal": {"entries": 150, "over": 0},
        "settled": {"entries": 1, "over": 0},
    }  # fmt: skip
    with other.client() as grid:
        assert dict(grid.map("all kinds/✓").items()) == ENTRIES
        assert dict(grid.map("mortal").items()) == {n: n for n in range(150)}
    assert settings(other, "settled") == settings(one, "settled")
    again = command("restore", str(archive), "--at", other.addresses, "--cluster", "other")
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    assert "there is a map 'all kinds/✓' already, and 2 more of the archive's: give --append" in again.stderr


def test_files_are_as_the_schema_says_and_times_to_live_go_on(archive: Path, other: Cluster, tmp_path: Path) -> None:
    before = rows_of(archive, "mortal")
    assert {from_data(row["key"]): row["expires_ms"] is not None for row in before} == {n: n < 100 for n in range(150)}
    assert {type(row["written_ms"]) for row in before} == {int}
    began = time.monotonic()
    restore_maps(None, source_of(other), str(archive), ["mortal"], if_exists=IfExists.REPLACE)
    export_maps(None, source_of(other), str(tmp_path / "again"), ["mortal"], consistent=False)
    # Times to live travel as what is left of them: what waits on its way ends so much later.
    on_the_way_ms = round((time.monotonic() - began) * 1000)
    ends = {row["key"]: row["expires_ms"] for row in before}
    for row in rows_of(tmp_path / "again", "mortal"):
        end = ends.pop(row["key"])
        assert (row["expires_ms"] is None) == (end is None)
        assert end is None or 0 <= row["expires_ms"] - end + 50 <= 1_100 + on_the_way_ms
    assert not ends


def test_a_schema_comes_back_with_the_rows_of_its_map(one: Cluster, other: Cluster, tmp_path: Path) -> None:
    """In the place of what the map has, or widened by it as an append of Spark is."""
    archive = tmp_path / "archive"
    with one.client() as grid:
        grid.map("typed")["a"] = {"id": "a", "price": 1}
        change_schema(grid, "typed", lambda _: PRICES.to_json())
        grid.map("bare")["a"] = 1
    export_maps(None, source_of(one), str(archive), ["typed", "bare"])
    with other.client() as grid:
        for name in ("typed", "bare"):
            change_schema(grid, name, lambda _: STOPS.to_json())
        restore_maps(None, source_of(other), str(archive), ["typed"], if_exists=IfExists.APPEND)
        grid.refresh()
        assert str(grid.map("typed").schema()) == "id string, stops int, price bigint"
        restore_maps(None, source_of(other), str(archive), ["typed"], if_exists=IfExists.REPLACE, with_settings=False)
        grid.refresh()
        assert str(grid.map("typed").schema()) == "id string, stops int, price bigint"
        restore_maps(None, source_of(other), str(archive), ["typed", "bare"], if_exists=IfExists.REPLACE)
        grid.refresh()
        assert (grid.map("typed").schema(), grid.map("bare").schema()) == (PRICES, None)
        change_schema(grid, "typed", lambda _: schema_of("price", TextType()).to_json())
        with pytest.raises(UsageError, match="column 'price' is string by the map's schema, and bigint in this write"):
            restore_maps(None, source_of(other), str(archive), ["typed"], if_exists=IfExists.APPEND)


def rows_of(archive: Path, name: str) -> list[dict[str, Any]]:
    (archived,) = read_manifest(None, str(archive)).chosen((name,))
    [path] = (archive / archived.folder).iterdir()
    table = pq.read_table(path)
    assert table.schema.equals(ENTRY_SCHEMA)
    assert len(table) == archived.entries
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def test_entries_are_written_and_read_in_parts(
    one: Cluster, other: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phalanx_spark.archive.local.ROW_GROUP_BYTES", 20_000)
    monkeypatch.setattr("phalanx_spark.archive.local.BATCH_BYTES", 5_000)
    many = {n: "x" * (n % 300) for n in range(2_000)}
    with one.client() as grid:
        grid.map("many").put_all(many)
    export_maps(None, source_of(one), f"file://{tmp_path}/a", ["many"])
    [path] = (tmp_path / "a" / "maps" / "0000").iterdir()
    assert pq.read_metadata(path).num_row_groups > 5
    assert restore_maps(None, source_of(other), str(tmp_path / "a")) == [Restored("many", 2_000, 0)]
    with other.client() as grid:
        assert dict(grid.map("many").items()) == many


def test_entries_whose_time_is_over_are_left_out(one: Cluster, other: Cluster, tmp_path: Path) -> None:
    with one.client() as grid:
        grid.map("short").put_all({n: n for n in range(20)}, ttl=1)
        grid.map("short")["for ever"] = True
        export_maps(None, source_of(one), str(tmp_path / "a"), ["short"])
        wait_for(lambda: len(grid.map("short")) == 1, "the others end")
    assert restore_maps(None, source_of(other), str(tmp_path / "a")) == [Restored("short", 1, 20)]


def test_a_disk_that_is_full_leaves_no_archive(one: Cluster, tmp_path: Path) -> None:
    with one.client() as grid:
        grid.map("big").put_all({n: bytes(range(256)) * 4 for n in range(1_000)})
    folder = str(tmp_path / "a")
    done = command("export", folder, "--at", one.addresses, "--cluster", "one", "--map", "big", limit_bytes=8_192)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "part-00000.parquet: File too large" in done.stderr
    assert f"{folder} is not an archive" in done.stderr
    with pytest.raises(UsageError, match="no export into it has ended"):
        read_manifest(None, folder)


def test_a_foreign_manifest_that_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"more": ' + "[" * 5_000)
    with pytest.raises(UsageError, match=r"manifest\.json cannot be read"):
        read_manifest(None, str(tmp_path))


@pytest.mark.parametrize(
    "name",
    ["../other/maps/0000", "maps/../../other", "/etc", "", ".", "maps//0000", "maps/0000/", "maps\\0000", "hdfs://host/x", "a:b",
     "maps/*", "maps/{0000,0001}", "maps/k=v", "maps/\0", "maps/\n", "~/x", "_x/..", "x" * 201],
)  # fmt: skip
def test_a_manifest_that_names_a_folder_elsewhere_is_refused(archive: Path, tmp_path: Path, name: str) -> None:
    """It came with an archive of somebody else. What it names would be read, and be in the cluster for all to see."""
    foreign = altered(archive, tmp_path / "a", lambda told: told["maps"][0].update(folder=name))
    with pytest.raises(
        UsageError, match=r"manifest\.json: the folder of map 'all kinds/✓': .* is not a folder of an archive"
    ):
        read_manifest(None, str(foreign))


@pytest.mark.parametrize("is_file", [False, True])
def test_a_link_out_of_an_archive_is_refused(other: Cluster, archive: Path, tmp_path: Path, is_file: bool) -> None:
    foreign = altered(archive, tmp_path / "a", lambda _: None)
    [part] = [each.folder for each in read_manifest(None, str(archive)).maps if each.name == "settled"]
    for path in list((foreign / part).iterdir()) if is_file else [foreign / part]:
        shutil.move(path, tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="is a link out of the archive: copy what it leads to into"):
        restore_maps(None, source_of(other), str(foreign), ["settled"], if_exists=IfExists.REPLACE)
    (tmp_path / "link").symlink_to(archive)
    restored = restore_maps(None, source_of(other), str(tmp_path / "link"), ["settled"], if_exists=IfExists.REPLACE)
    assert [each.name for each in restored] == ["settled"], "the archive itself may be behind a link"


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-10]), r"part-00000\.parquet cannot be read: "),
        (lambda path: pq.write_table(pa.table({"key": [b"k"]}), path), "it has no column 'expires_ms'"),
        (lambda path: path.unlink(), "the archive's files hold 0 entries, and the manifest says 1"),
    ],
    ids=["cut short", "another file", "gone"],
)
def test_files_that_are_not_as_they_were_change_nothing(
    other: Cluster, archive: Path, tmp_path: Path, harm: Callable[[Path], object], told: str
) -> None:
    copy = altered(archive, tmp_path / "a", lambda _: None)
    shutil.rmtree(copy / "maps")
    (part,) = read_manifest(None, str(archive)).chosen(("settled",))
    (copy / part.folder).mkdir(parents=True)
    [file] = (archive / part.folder).iterdir()
    (copy / part.folder / file.name).write_bytes(file.read_bytes())
    harm(copy / part.folder / file.name)
    with other.client() as grid:
        grid.map("settled").clear()
        grid.map("settled")["mine"] = 1
        for how in (IfExists.REPLACE, IfExists.APPEND):
            with pytest.raises(UsageError, match=told):
                restore_maps(None, source_of(other), str(copy), ["settled"], if_exists=how)
            assert dict(grid.map("settled").items()) == {"mine": 1}


def test_what_contradicts_itself_or_is_not_here_is_told(
    phalanx_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    for arguments, told in (
        (["--local", "--spark", "local[2]"], "--local and --spark exclude each other"),
        (["--spark", "local[2]"], f"Spark needs Java 17 or newer, and JAVA_HOME={tmp_path} has none"),
    ):
        for name in ("export", "restore"):
            result = phalanx_command(name, str(tmp_path / "x"), "--at", "127.0.0.1:1", *arguments)
            assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
            assert told in result.stderr
    elsewhere = phalanx_command("export", "hdfs://host/x", "--at", "127.0.0.1:1", "--local")
    assert "--local: hdfs://host/x is not a folder of this machine" in elsewhere.stderr
    with pytest.raises(UsageError, match="hdfs://host/x is not a folder of this machine: Spark reaches it"):
        export_maps(None, Source("127.0.0.1:1", "c"), "hdfs://host/x")


def test_much_data_is_for_spark_unless_said_otherwise(
    phalanx_command: Command, one: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with one.client() as grid:
        grid.map("much")["k"] = "v"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr("phalanx_spark.cli.archive.LITTLE_BYTES", 0)
    name = ("--at", one.addresses, "--cluster", "one")
    refused = phalanx_command("export", str(tmp_path / "a"), *name)
    assert refused.exit_code == 2
    assert "Spark needs Java" in refused.stderr
    assert "or give --local: this process does it alone" in refused.stderr
    assert not (tmp_path / "a").exists()
    assert phalanx_command("export", str(tmp_path / "a"), *name, "--local").exit_code == 0
    few = phalanx_command("export", str(tmp_path / "b"), *name, "--map", "much")
    assert (few.exit_code, few.stdout) == (0, "much\t1 entry\n")
