"""What a terminal shows when Spark starts: errors, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx_spark.quiet import quiet_start

SAYS = """
from phalanx.spark import session
spark = session("local[1]")
logger = spark._jvm.org.apache.logging.log4j.LogManager.getLogger("planted")
logger.warn("a warning")
logger.error("an error")
spark.stop()
"""
OPTIONS = "SPARK_SUBMIT_OPTS"
OF_JAVA_ITSELF = "WARNING: Using incubator modules: jdk.incubator.vector"
"""No setting ends this one: Spark asks for the module, and Java tells before it reads any."""


@pytest.fixture(autouse=True)
def nobody_has_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (OPTIONS, "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.long
def test_a_start_is_silent_and_errors_are_told() -> None:
    done = subprocess.run([sys.executable, "-c", SAYS], capture_output=True, text=True, timeout=110, check=True)
    told = [line for line in done.stderr.splitlines() if line != OF_JAVA_ITSELF]
    assert [line.partition(" ERROR ")[2] for line in told] == ["planted: an error"]
    assert done.stdout == ""


def test_options_that_were_there_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    with quiet_start():
        (option,) = os.environ[OPTIONS].split()
        assert Path(option.partition("=")[2]).is_file()
    assert OPTIONS not in os.environ
    monkeypatch.setenv(OPTIONS, "-Dmine=1")
    with quiet_start():
        assert os.environ[OPTIONS] == f"-Dmine=1 {option}"
    assert os.environ[OPTIONS] == "-Dmine=1"


@pytest.mark.parametrize("by", ["option", "SPARK_CONF_DIR", "SPARK_HOME"])
def test_who_has_a_configuration_keeps_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, by: str) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "log4j2.properties").touch()
    options = "-Dlog4j2.configurationFile=mine" if by == "option" else "-Dmine=1"
    monkeypatch.setenv(OPTIONS, options)
    if by != "option":
        monkeypatch.setenv(by, str({"SPARK_CONF_DIR": conf, "SPARK_HOME": tmp_path}[by]))
    with quiet_start():
        assert os.environ[OPTIONS] == options
