"""What is missing beside the grid is said in one line with what to do, before anything else is begun."""

import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.common.errors import UsageError
from phalanx_spark.requirements import require_charts, require_spark


def java(home: Path, version: str) -> Path:
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    path.chmod(0o755)
    return home


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return monkeypatch


def test_a_package_that_is_not_installed_is_named_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(UsageError, match=r"^export needs PySpark: pip install 'phalanx\[spark\]'$"):
        require_spark("export")
    with pytest.raises(UsageError, match=r"^--html needs vl-convert-python: pip install 'phalanx\[audit\]'$"):
        require_charts("--html")


def test_the_package_for_spark_says_what_it_needs() -> None:
    program = "import sys; sys.modules['pyspark'] = None; import phalanx; import phalanx.spark"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    last = done.stderr.splitlines()[-1]
    assert last == (
        "ModuleNotFoundError: phalanx.spark needs pyspark, which is not installed: pip install 'phalanx[spark]'"
    )


def test_without_java_it_says_what_else_can_be_done(no_java: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"Java 17 or newer, and none was found: .*; without it: --jobs N$"):
        require_spark("--spark", instead="without it: --jobs N")


def test_a_java_home_without_java_is_named_although_there_is_one_on_the_path(
    no_java: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    no_java.setenv("PATH", str(java(tmp_path / "fits", "17.0.15") / "bin"))
    require_spark("export")
    no_java.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=f"JAVA_HOME={tmp_path} has none"):
        require_spark("export")


@pytest.mark.parametrize(("version", "major"), [("1.8.0_392", 8), ("11.0.2", 11)])
def test_a_java_that_is_too_old_is_named(no_java: pytest.MonkeyPatch, tmp_path: Path, version: str, major: int) -> None:
    no_java.setenv("JAVA_HOME", str(java(tmp_path / "old", version)))
    with pytest.raises(UsageError, match=f"Java 17 or newer, and .*old/bin/java is {major}: install a newer one"):
        require_spark("export")


def test_a_java_that_fits_is_enough(no_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    no_java.setenv("JAVA_HOME", str(java(tmp_path / "fits", "25")))
    require_spark("export")
