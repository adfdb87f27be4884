"""A standalone Spark on this machine: a master and workers, each on an address of its own, so that they count as hosts.

Spark runs a second copy of a slow task only on another host, and the executors of `local-cluster` all share one.
"""

import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

from spark.drivers import spark_home
from support.processes import wait_for

DEADLINE_S = 120.0
SMALL = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class Standalone:
    """Its processes; `stop` ends all, and their executors."""

    def __init__(self, folder: Path, hosts: tuple[str, ...]) -> None:
        self.folder = folder
        self._home = spark_home(folder)
        self._processes: list[subprocess.Popen[bytes]] = []
        master = self._start("master", "127.0.0.1", ["master.Master", "--port", "0"])
        self.url = wait_for(
            lambda: find(r"spark://[\d.:]+", master), "the master listens", DEADLINE_S, master.read_text
        )
        for host in hosts:
            work = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"), self.url]
            worker = self._start(f"worker-{host}", host, ["worker.Worker", *work])
            wait_for(partial(find, "registered with master", worker), host, DEADLINE_S, worker.read_text)

    def stop(self) -> None:
        """Nothing of it is left."""
        for process in reversed(self._processes):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self, name: str, host: str, command: list[str]) -> Path:
        """Where it says what it does."""
        log = self.folder / f"{name}.log"
        environment = os.environ | {
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": SMALL,
            "PYSPARK_PYTHON": sys.executable,
        }
        kind, *rest = command
        with log.open("w") as output:
            process = subprocess.Popen(
                [self._home / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", "--host", host, "--webui-port", "0", *rest],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True,
            )  # fmt: skip
        self._processes.append(process)
        return log


def find(pattern: str, log: Path) -> str:
    """The first place of a log that looks so, or nothing."""
    found = re.search(pattern, log.read_text(errors="replace"))
    return found[0] if found else ""
