"""The demo's files: found, unpacked, counted, and refused when they are not what they should be."""

import zipfile
from pathlib import Path

import pytest

from phalanx.common.errors import PhalanxError
from phalanx.demo import dataset
from phalanx.demo.dataset import find_files, unpack


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "unpacked"
    folder.mkdir()
    return folder


def test_files_are_unpacked_and_counted(source, target):
    with zipfile.ZipFile(source / "flights.csv.zip", "w") as archive:
        archive.write(source / "flights.csv", "flights.csv")
    text = (source / "flights.csv").read_text()
    (source / "flights.csv").unlink()
    files = {file.table.name: file for file in unpack(target, source)}
    assert {name: file.rows for name, file in files.items()} == {
        "airlines": 2, "airports": 2, "planes": 2, "weather": 2, "flights": 4,
    }  # fmt: skip
    assert files["flights"].path.read_text() == text
    assert all(file.path.parent == target for file in files.values())


def test_the_package_holds_what_the_demo_promises(target):
    """Its key columns identify every row, too, or this would raise."""
    assert {file.table.name: file.rows for file in unpack(target)} == {
        "airlines": 16, "airports": 1_458, "planes": 3_322, "weather": 26_115, "flights": 336_776,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "line", "told"),
    [
        ("airlines", "UA,Other", "comes twice"),
        ("planes", "NA,2004,a,b,c,2,55,NA,d", "is empty"),
        ("flights", "2013,1,1,1,1,1,1,1,1,UA,1545,N9,JFK,LAX,1,1,1,1,2013-01-01T10:00:00Z", "comes twice"),
    ],
)
def test_rows_that_would_replace_each_other_are_refused(source, target, name, line, told):
    with (source / f"{name}.csv").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(PhalanxError, match=rf"{name}\.csv: the key .* {told}|{name}\.csv: the key .*{told}"):
        unpack(target, source)


def test_other_columns_are_refused(source, target):
    (source / "airlines.csv").write_text("code,name\nUA,United\n")
    with pytest.raises(PhalanxError, match=r"airlines\.csv: columns \['code', 'name'\] instead of"):
        unpack(target, source)


def test_a_missing_or_broken_file_is_named(source, target):
    (source / "weather.csv").unlink()
    with pytest.raises(PhalanxError, match=r"no readable weather\.csv"):
        unpack(target, source)
    (source / "weather.csv.zip").write_bytes(b"not a zip")
    with pytest.raises(PhalanxError, match=r"no readable weather\.csv"):
        unpack(target, source)


def test_without_the_package_the_remedy_is_told(monkeypatch):
    monkeypatch.setattr(dataset, "find_spec", lambda name: None)
    with pytest.raises(PhalanxError, match=r"pip install 'phalanx\[demo\]'"):
        find_files()
