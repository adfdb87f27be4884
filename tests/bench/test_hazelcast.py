"""Measurements beside Hazelcast: what is said where it is not there, or does not start."""

import shutil
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import hazelcast
from benchmarks.command import app
from benchmarks.servers import ServerFailed


@pytest.mark.parametrize(
    ("jar", "said"),
    [
        (None, "HAZELCAST_JAR is not set"),
        ("", "HAZELCAST_JAR is not set"),
        ("/nowhere.jar", "/nowhere.jar, which is no file"),
    ],
)
def test_a_missing_jar_is_told_with_the_reason(jar: str | None, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if jar is None:
        monkeypatch.delenv("HAZELCAST_JAR", raising=False)
    else:
        monkeypatch.setenv("HAZELCAST_JAR", jar)
    assert hazelcast.find_jar() is None
    assert said in hazelcast.told_missing()
    assert "see benchmarks/README.md" in hazelcast.told_missing()


def test_without_a_java_it_is_not_the_jar_that_is_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "hazelcast.jar"
    jar.touch()
    monkeypatch.setenv("HAZELCAST_JAR", str(jar))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert hazelcast.find_jar() is None
    assert "there is no Java" in hazelcast.told_missing()
    assert "HAZELCAST_JAR" not in hazelcast.told_missing()


@pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java on the path")
def test_a_file_that_is_no_jar_is_told_at_once_in_the_words_of_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    jar = tmp_path / "hazelcast.jar"
    jar.write_text("no jar")
    began = time.monotonic()
    with pytest.raises(ServerFailed, match=r"ended with status 1: .*HazelcastMemberStarter"):
        hazelcast.HazelcastCluster(jar, 1)
    assert time.monotonic() - began < hazelcast.START_TIMEOUT_S


@pytest.mark.parametrize("study", ["redundancy", "migration"])
def test_a_part_of_no_name_is_refused_with_the_names(study: str) -> None:
    done = CliRunner().invoke(app, [study, "--only", "dance"])
    assert done.exit_code == 2
    said = " ".join(done.output.split())
    assert "no case has 'dance' in its name; there are" in said
