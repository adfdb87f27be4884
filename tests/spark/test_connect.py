"""Spark Connect: a client without a Java of its own reads, writes and follows maps over a server."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.client.ask import Inquirer
from phalanx.common.map_settings import JournalSettings, MapChange
from spark.drivers import spark_home
from spark.standalone import SMALL
from support.processes import Cluster, free_port, wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

DRIVER = Path(__file__).with_name("connect_driver.py")
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
ROWS = 200


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of Spark Connect, as `sbin/start-connect-server.sh` starts it: where it listens."""
    folder = tmp_path_factory.mktemp("server")
    port = free_port()
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.extraJavaOptions": SMALL,
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.ui.enabled": "false",
    }
    home = spark_home(folder)
    command: list[str | Path] = [home / "bin" / "spark-submit", "--class", SERVER, "--master", "local[2]"]
    command += [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    log = folder / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=os.environ | {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable},
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        wait_for(lambda: is_listening(port) or process.poll() is not None, "the server listens", 120, log.read_text)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        print(log.read_text()[-5000:])


def is_listening(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def told(server: str, members: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of each step of the client."""
    with Inquirer(members.members[0].address, cluster=members.name) as master:
        master.change_map("followed", MapChange(journal=JournalSettings(1000)))
    with members.client() as grid:
        grid.partition_table()
        members.wait_redundant()
        grid.map("followed").put_all({key: {"n": key} for key in range(20)})
        grid.map("followed").remove(3)
    options = {"members": members.addresses, "cluster": members.name}
    given = {"remote": server, "options": options, "folder": str(tmp_path_factory.mktemp("client"))}
    done = subprocess.run(
        [sys.executable, str(DRIVER), json.dumps(given)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["session"] == "pyspark.sql.connect.session"
    return found


def test_what_is_read_is_what_was_written(told: dict[str, Any]) -> None:
    assert told["append"] == ROWS
    assert told["read"] == [[key, key * 3] for key in range(ROWS)]
    assert told["filter"] == [[5, 15]]
    assert told["view"] == [[5, 16, "bigint"]]


def test_every_mode_does_what_it_says(told: dict[str, Any]) -> None:
    assert told["overwrite"] == 7
    assert told["ignore"] == 7
    assert "map 'flights' of the cluster 'test' has entries already: write with" in told["error"]


def test_what_is_wrong_is_said_in_a_line_and_nothing_is_written(told: dict[str, Any]) -> None:
    assert "there is no option 'misspelt'; options of a write: " in told["option"]
    assert "key column 'key' is null in 1 of 100 rows of a batch" in told["null"]
    assert told["nothing"] == 0


def test_a_stream_is_written(told: dict[str, Any]) -> None:
    assert told["sink"] == ROWS


def test_each_batch_writes_each_batch_once(told: dict[str, Any]) -> None:
    assert told["count"] == {"key": "k0", "count": 3}
    assert told["count again"] == [{"key": "k0", "count": -1}, True]


def test_each_batch_without_a_name_is_refused_before_the_query_starts(told: dict[str, Any]) -> None:
    assert told["unnamed"].startswith("UsageError: ")
    assert told["unnamed"].endswith("each_batch(query='...')")
    assert "\n" not in told["unnamed"]


def test_changes_are_followed(told: dict[str, Any]) -> None:
    assert told["follow"] == [key for key in range(20) if key != 3]


def test_a_session_can_be_told_of_the_format(told: dict[str, Any]) -> None:
    """For servers that do not find it by themselves."""
    assert told["register"] is None
    assert told["registered"] == 7
