"""Drivers of streaming queries: started, killed, told to stop."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark

from support.processes import wait_for

DRIVER = Path(__file__).with_name("stream_driver.py")
DEADLINE_S = 300.0
"""A Java process that starts beside others is slow."""


class Driver:
    """One run of a query, in a process of its own with a Java process and workers below it."""

    def __init__(self, folder: Path, **given: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "driver.log"
        self.stopper = folder / "stop"
        self.flag = folder / "held"
        self._release = folder / "released"
        if "hold" in given:
            given["hold"] = given["hold"] | {"flag": str(self.flag), "release": str(self._release)}
        environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        if given.get("master", "").startswith("local-cluster"):
            environment["SPARK_HOME"] = str(spark_home(folder))
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(DRIVER), json.dumps(given | {"stop": str(self.stopper)})],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    @property
    def said(self) -> list[str]:
        """What it has printed about its query."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if line.partition(" ")[0] in ("started", "batch", "failed")]

    def wait_held(self) -> None:
        """Until it stands where it was to stop."""
        self._wait(self.flag.exists, "the driver stands at the commit")

    def release(self) -> None:
        """Let it go on from there."""
        self._release.touch()

    def executors(self) -> list[int]:
        """Its Java processes that run tasks, by their ids."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if os.getpgid(int(process.name)) == self._process.pid:
                    command = (process / "cmdline").read_bytes()
                    if b"CoarseGrainedExecutorBackend" in command and b"java" in command.split(b"\0")[0]:
                        found.append(int(process.name))
            except (ProcessLookupError, FileNotFoundError):
                continue
        return sorted(found)

    def wait_batches(self, number: int) -> None:
        """Until it has done a batch of this number or a later one."""
        self._wait(lambda: self._done() >= number, f"batch {number} is done")

    def kill(self) -> None:
        """Crash the driver, and wait until its processes have ended."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Let it end its query and itself."""
        self.stopper.touch()
        assert self._process.wait(DEADLINE_S) == 0, self.tail()

    def close(self) -> None:
        """Nothing of it is left, however the test went."""
        if self._process.poll() is None:
            self.kill()

    def tail(self) -> str:
        """The end of what it wrote, for the report of a test that failed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])

    def _done(self) -> int:
        numbers = [int(line.split()[1]) for line in self.said if line.startswith("batch ")]
        return max(numbers, default=-1)

    def _wait(self, condition: Any, what: str) -> None:
        def met() -> bool:
            assert self._process.poll() is None, f"the driver ended\n{self.tail()}"
            return bool(condition())

        wait_for(met, what, DEADLINE_S, self.tail)


def spark_home(folder: Path) -> Path:
    """Spark as it is installed, in a folder of its own: executors of a cluster on one machine write logs beside it."""
    home = folder / "spark"
    home.mkdir(exist_ok=True)
    installed = Path(pyspark.__file__).parent
    for name in ("bin", "jars", "python", "sbin"):
        if not (home / name).exists():
            (home / name).symlink_to(installed / name)
    return home
