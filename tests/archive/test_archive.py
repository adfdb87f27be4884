"""Maps out of one cluster into Parquet files, and into another cluster of another size."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from phalanx.codec.values import from_data
from phalanx.common.backups import BackupCount
from phalanx.common.errors import PhalanxError, UsageError
from phalanx.common.map_settings import MapChange, Protection
from phalanx_spark.archive import IfExists, Restored, export_maps, read_manifest, restore_maps
from phalanx_spark.archive.exporting import Source
from phalanx_spark.archive.manifest import ArchivedMap
from support.archives import ENTRIES, altered, change, settings, source_of
from support.processes import Cluster, wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def archive(spark: SparkSession, one: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three maps, one with settings of its own."""
    with one.client() as grid:
        grid.map("all kinds/✓").put_all(ENTRIES)
        grid.map("mortal").put_all({n: n for n in range(100)}, ttl=1_000)
        grid.map("mortal").put_all({n: n for n in range(100, 150)})
        grid.map("settled")["k"] = "v"
    change(one, "settled", MapChange(BackupCount(0, 2), Protection(minimum=1), "put-if-absent"))
    folder = tmp_path_factory.mktemp("archives") / "one"
    told: list[str] = []
    manifest = export_maps(spark, source_of(one), str(folder), tell=lambda each: told.append(each.name))
    assert told == [each.name for each in manifest.maps] == ["all kinds/✓", "mortal", "settled"]
    return folder


def test_a_whole_grid_comes_back_in_a_cluster_of_another_size(
    spark: SparkSession, one: Cluster, other: Cluster, archive: Path
) -> None:
    done = restore_maps(spark, source_of(other), str(archive))
    assert done == [Restored("all kinds/✓", len(ENTRIES), 0), Restored("mortal", 150, 0), Restored("settled", 1, 0)]
    with other.client() as grid:
        assert grid.map_names() == ["all kinds/✓", "mortal", "settled"]
        assert dict(grid.map("all kinds/✓").items()) == ENTRIES
        assert dict(grid.map("mortal").items()) == {n: n for n in range(150)}
    assert settings(other, "settled") == settings(one, "settled")
    assert settings(other, "mortal") == settings(one, "mortal")


def test_what_spark_has_written_is_read_without_it_and_the_other_way_round(
    spark: SparkSession, one: Cluster, other: Cluster, archive: Path, tmp_path: Path
) -> None:
    with other.client() as grid:
        replace = IfExists.REPLACE
        wanted = [Restored("all kinds/✓", len(ENTRIES), 0), Restored("mortal", 150, 0), Restored("settled", 1, 0)]
        assert restore_maps(None, source_of(other), str(archive), if_exists=replace) == wanted
        assert dict(grid.map("all kinds/✓").items()) == ENTRIES
        export_maps(None, source_of(one), str(tmp_path / "a"), [each.name for each in wanted])
        for each in wanted:
            grid.map(each.name).clear()
        assert restore_maps(spark, source_of(other), str(tmp_path / "a"), if_exists=replace) == wanted
        assert dict(grid.map("all kinds/✓").items()) == ENTRIES
    before, after = (ends(spark, folder, "mortal") for folder in (archive, tmp_path / "a"))
    assert {key: end is None for key, end in before.items()} == {key: end is None for key, end in after.items()}


def test_times_to_live_go_on(spark: SparkSession, other: Cluster, archive: Path, tmp_path: Path) -> None:
    """What is restored is exported again: each entry ends when it would have, to the second."""
    restore_maps(spark, source_of(other), str(archive), ["mortal"], if_exists=IfExists.REPLACE)
    export_maps(spark, source_of(other), str(tmp_path / "again"), ["mortal"], consistent=False)
    before, after = (ends(spark, folder, "mortal") for folder in (archive, tmp_path / "again"))
    assert before.keys() == after.keys()
    assert sum(end is not None for end in before.values()) == 100
    for key, end in before.items():
        again = after[key]
        assert (again is None) == (end is None)
        assert end is None or again is None or 0 <= again - end + 50 <= 1_100, (key, end, again)


def ends(spark: SparkSession, folder: Path, name: str) -> dict[object, int | None]:
    (archived,) = read_manifest(spark, str(folder)).chosen((name,))
    rows = spark.read.parquet(str(folder / archived.folder)).collect()
    return {from_data(bytes(row.key)): row.expires_ms for row in rows}


def test_entries_whose_time_is_over_are_left_out_unless_it_starts_anew(
    spark: SparkSession, one: Cluster, other: Cluster, tmp_path: Path
) -> None:
    with one.client() as grid:
        grid.map("short").put_all({n: n for n in range(20)}, ttl=12)
        grid.map("short")["for ever"] = True
        export_maps(spark, source_of(one), str(tmp_path / "a"), ["short"])
        wait_for(lambda: len(grid.map("short")) == 1, "the others end")
    assert restore_maps(spark, source_of(other), str(tmp_path / "a")) == [Restored("short", 1, 20)]
    assert restore_maps(
        spark, source_of(other), str(tmp_path / "a"), if_exists=IfExists.REPLACE, restart_ttls=True
    ) == [Restored("short", 21, 0)]
    with other.client() as grid:
        wait_for(lambda: list(grid.map("short")) == ["for ever"], "the others end again")


def test_what_a_map_holds_is_kept_replaced_or_added_to(
    spark: SparkSession, other: Cluster, archive: Path
) -> None:  # fmt: skip
    with other.client() as grid:
        for name in grid.map_names():
            grid.map(name).clear()
        grid.map("settled").update({"k": "mine", "more": "mine"})
        with pytest.raises(UsageError, match=r"there is a map 'settled' already: give --append .* or --replace"):
            restore_maps(spark, source_of(other), str(archive))
        assert grid.map_names() == ["settled"], "nothing is restored if one map is in the way"
        assert dict(grid.map("settled").items()) == {"k": "mine", "more": "mine"}
        restore_maps(spark, source_of(other), str(archive), ["settled"], if_exists=IfExists.APPEND)
        assert dict(grid.map("settled").items()) == {"k": "v", "more": "mine"}
        restore_maps(spark, source_of(other), str(archive), ["settled"], if_exists=IfExists.REPLACE)
        assert dict(grid.map("settled").items()) == {"k": "v"}


@pytest.mark.parametrize("by_spark", [True, False], ids=["spark", "local"])
def test_a_member_that_dies_takes_nothing_along(
    spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, by_spark: bool
) -> None:
    """After the first of two maps was exported, and after the first was restored."""
    engine = spark if by_spark else None
    cluster = Cluster(tmp_path_factory.mktemp("dying"), "dying")
    try:
        cluster.start(4)
        many = dict.fromkeys(range(5000), "x" * 100)
        with cluster.client() as grid:
            for name in ("a", "b"):
                grid.map(name).put_all(many)
        cluster.wait_redundant()
        source = source_of(cluster)

        def kill_after_a(each: ArchivedMap | Restored) -> None:
            if each.name == "a":
                kill_last(cluster)

        export_maps(engine, source, str(tmp_path / "a"), tell=kill_after_a)
        cluster.wait_redundant()
        assert restore_maps(
            engine, source, str(tmp_path / "a"), if_exists=IfExists.REPLACE, tell=kill_after_a
        ) == [
            Restored("a", 5_000, 0), Restored("b", 5_000, 0)
        ]  # fmt: skip
        with cluster.client() as grid:
            assert dict(grid.map("a").items()) == dict(grid.map("b").items()) == many
    finally:
        cluster.stop()


def kill_last(cluster: Cluster) -> None:
    cluster.kill(cluster.members[-1])


def test_operators_do_it_with_two_commands(one: Cluster, other: Cluster, tmp_path: Path) -> None:
    with one.client() as grid, other.client() as copy:
        grid.map("by command")["k"] = "v"
        copy.map("by command").clear()
        folder = str(tmp_path / "a")
        done = command(
            "export",
            folder,
            "--at",
            one.addresses,
            "--cluster",
            "one",
            "--map",
            "by command",
            "--json",
            "--spark",
            "local[2]",
        )
        assert (done.returncode, json.loads(done.stdout)) == (0, {"folder": folder, "maps": {"by command": 1}})
        back = ("restore", folder, "--at", other.addresses, "--cluster", "other", "--spark", "local[2]")
        done = command(*back)
        assert (done.returncode, done.stdout) == (0, "by command\t1 entry\n")
        assert dict(copy.map("by command").items()) == {"k": "v"}
        done = command(*back)
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1].startswith("phalanx: there is a map 'by command' already")


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "phalanx", *arguments], capture_output=True, text=True, timeout=250, check=False
    )


# --- what is wrong --------------------------------------------------------------------------------------------------


def test_an_export_needs_a_new_folder_and_maps_that_are_there(
    spark: SparkSession, one: Cluster, archive: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="is not empty: an export makes an archive of its own, so give a new folder"):
        export_maps(spark, source_of(one), str(archive))
    with pytest.raises(UsageError, match=r"there is no map 'typo'; there are: .*settled"):
        export_maps(spark, source_of(one), str(tmp_path / "x"), ["typo"])
    assert not (tmp_path / "x").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file: give a folder"):
        export_maps(spark, source_of(one), str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"cannot use nosuch://host/x: .*nosuch"):
        export_maps(spark, source_of(one), "nosuch://host/x")


def test_what_is_no_archive_is_not_restored(spark: SparkSession, other: Cluster, archive: Path, tmp_path: Path) -> None:
    source = source_of(other)
    with pytest.raises(UsageError, match="is not an archive: there is nothing"):
        restore_maps(spark, source, str(tmp_path / "nothing"))
    (tmp_path / "half" / "maps").mkdir(parents=True)
    with pytest.raises(UsageError, match="no export into it has ended"):
        restore_maps(spark, source, str(tmp_path / "half"))
    with pytest.raises(UsageError, match="the archive has no map 'typo'; it has: all kinds/✓, mortal, settled"):
        restore_maps(spark, source, str(archive), ["typo"])
    with pytest.raises(UsageError, match=r"manifest\.json cannot be read"):
        restore_maps(spark, source, str(altered(archive, tmp_path / "a", lambda told: told.pop("maps"))))
    with pytest.raises(UsageError, match="is an archive of format 2; this version reads format 1"):
        restore_maps(spark, source, str(altered(archive, tmp_path / "b", lambda told: told.update(format=2))))
    unknown = altered(archive, tmp_path / "c", lambda told: told["maps"][0]["settings"].update(new=1))
    with pytest.raises(UsageError, match="has a setting 'new', which this version does not know: restore with a newer"):
        restore_maps(spark, source, str(unknown), if_exists=IfExists.REPLACE)


def test_a_map_with_missing_files_keeps_what_it_held(
    spark: SparkSession, other: Cluster, archive: Path, tmp_path: Path
) -> None:
    broken = altered(archive, tmp_path / "a", lambda told: told["maps"][2].update(entries=2))
    with other.client() as grid:
        grid.map("settled").clear()
        grid.map("settled")["mine"] = 1
        for how in (IfExists.REPLACE, IfExists.APPEND):
            with pytest.raises(UsageError, match="the archive's files hold 1 entry, and the manifest says 2"):
                restore_maps(spark, source_of(other), str(broken), ["settled"], if_exists=how)
            assert dict(grid.map("settled").items()) == {"mine": 1}


def test_a_cluster_that_is_not_there_is_named(spark: SparkSession, archive: Path, tmp_path: Path) -> None:
    nobody = Source("127.0.0.1:1", "one")
    with pytest.raises(PhalanxError, match=r"127\.0\.0\.1:1"):
        export_maps(spark, nobody, str(tmp_path / "x"))
    with pytest.raises(PhalanxError, match=r"127\.0\.0\.1:1"):
        restore_maps(spark, nobody, str(archive))
    assert not (tmp_path / "x").exists()
