"""A Hazelcast cluster on this machine, from its jar, with its official Python client: what users would pick instead.

Members listen on the loopback interface, find each other by a list of addresses, keep one synchronous backup and tell
their health by HTTP. `benchmarks/README.md` says how to get the jar and the client.
"""

from __future__ import annotations

import contextlib
import http
import http.client
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.servers import ServerFailed, free_port, wait_stopped
from phalanx.common.errors import UnavailableError

START_TIMEOUT_S = 60.0
LOOK_PAUSE_S = 0.01
ANSWER_S = 1.0
HEAP = "3g"
ENTRIES_AT_ONCE = 2_000
JAR_VARIABLE = "HAZELCAST_JAR"

_XML = """\
<hazelcast xmlns="http://www.hazelcast.com/schema/config">
  <cluster-name>bench</cluster-name>
  <properties>
    <property name="hazelcast.phone.home.enabled">false</property>
    <property name="hazelcast.logging.type">jdk</property>
  </properties>
  <network>
    <port auto-increment="false">{port}</port>
    <interfaces enabled="true"><interface>127.0.0.1</interface></interfaces>
    <join>
      <auto-detection enabled="false"/>
      <multicast enabled="false"/>
      <tcp-ip enabled="true">{members}</tcp-ip>
    </join>
    <rest-api enabled="true"><endpoint-group name="HEALTH_CHECK" enabled="true"/></rest-api>
  </network>
  <map name="default"><backup-count>1</backup-count></map>
</hazelcast>
"""


def find_jar() -> Path | None:
    """Return Hazelcast's jar; None where it, its Python client or a Java is missing."""
    return None if _lacking() else Path(os.environ[JAR_VARIABLE])


def told_missing() -> str:
    """Say why nothing is compared with Hazelcast, and what to do."""
    return f"Hazelcast is not here, so there is nothing to compare with: {', and '.join(_lacking())}; see benchmarks/README.md"


def _lacking() -> list[str]:
    """List what is missing, in words."""
    found, jar = [], os.environ.get(JAR_VARIABLE)
    if not jar:
        found.append(f"{JAR_VARIABLE} is not set to its jar")
    elif not Path(jar).is_file():
        found.append(f"{JAR_VARIABLE} is set to {jar}, which is no file")
    if importlib.util.find_spec("hazelcast") is None:
        found.append("its Python client is not installed")
    if _java() is None:
        found.append("there is no Java on the path or at JAVA_HOME")
    return found


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")


class HazelcastCluster:
    """Member processes and one client. Ends them when the context ends."""

    label = "Hazelcast"

    def __init__(self, jar: Path, members: int) -> None:
        self._stack = contextlib.ExitStack()
        try:
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="hazelcast-bench-")))
            self.ports = [free_port() for _ in range(members)]
            self._logs = [folder / f"{port}.log" for port in self.ports]
            self._processes = [self._start(jar, folder, port) for port in self.ports]
            self._wait(lambda: self._health("cluster-size") == members, "form a cluster")
            self._client = self._connect()
            self._map = self._client.get_map("bench").blocking()
            self._map.size()
            self._wait(lambda: self.is_whole(members), "replicate")
        except BaseException:
            self._stack.close()
            raise

    @property
    def pids(self) -> list[int]:
        """The processes of the members."""
        return [process.pid for process in self._processes]

    def __enter__(self) -> HazelcastCluster:
        return self

    def __exit__(self, *ignored: object) -> None:
        self._stack.close()

    def fill(self, entries: int, value: bytes) -> None:
        """Store so many entries of one value, with whole numbers for keys."""
        stored = bytearray(value)  # its client knows this as an array of bytes, and would pickle `bytes`
        for first in range(0, entries, ENTRIES_AT_ONCE):
            self._map.put_all(dict.fromkeys(range(first, min(first + ENTRIES_AT_ONCE, entries)), stored))

    def put(self, key: int, value: bytes) -> None:
        """Store one entry. Returns when it is acknowledged; raises `UnavailableError` if it is not."""
        import hazelcast.errors

        try:
            self._map.set(key, bytearray(value))
        except hazelcast.errors.HazelcastError as error:
            raise UnavailableError(str(error)) from error

    def key_of_last(self) -> int:
        """Return a key that the last member owns."""
        partitions = self._client.partition_service
        members = {member.address.port: member.uuid for member in self._client.cluster_service.get_members()}
        victim = members[self.ports[-1]]
        return next(
            key for key in range(100_000)
            if partitions.get_partition_owner(partitions.get_partition_id(key)) == victim
        )  # fmt: skip

    def fail_last(self, number: signal.Signals) -> None:
        """Send a signal to the last member, and wait until it does nothing any more."""
        self._processes[-1].send_signal(number)
        wait_stopped(self._processes[-1].pid)

    def is_whole(self, members: int) -> bool:
        """Whether there are so many members, and every partition has all replicas that they can hold."""
        # Whether it is safe is asked last: the answer waits for every member, also for one that has just failed.
        return (
            self._health("cluster-size") == members
            and not self._health("migration-queue-size")
            and self._health("cluster-safe") is True
        )

    def _start(self, jar: Path, folder: Path, port: int) -> subprocess.Popen[bytes]:
        config = folder / f"{port}.xml"
        members = "".join(f"<member>127.0.0.1:{each}</member>" for each in self.ports)
        config.write_text(_XML.format(port=port, members=members))
        command = [
            _java() or "java", f"-Xmx{HEAP}", f"-Dhazelcast.config={config}", "-cp", str(jar),
            "com.hazelcast.core.server.HazelcastMemberStarter",
        ]  # fmt: skip
        log = self._stack.enter_context((folder / f"{port}.log").open("wb"))
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._stack.callback(_end, process)
        return process

    def _connect(self) -> Any:
        import hazelcast.client

        addresses = [f"127.0.0.1:{port}" for port in self.ports[:-1] or self.ports]
        client = hazelcast.client.HazelcastClient(cluster_name="bench", cluster_members=addresses)
        self._stack.callback(client.shutdown)
        return client

    def _health(self, what: str) -> Any:
        """Ask the first member; None: it has no answer in time."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[0], timeout=ANSWER_S)
        try:
            connection.request("GET", f"/hazelcast/health/{what}")
            response = connection.getresponse()
            text = response.read()
            # Whether it is safe is told by the status alone.
            return msgspec.json.decode(text) if text else response.status == http.HTTPStatus.OK
        except TimeoutError:
            return None
        finally:
            connection.close()

    def _wait(self, is_done: Any, what: str) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException, msgspec.DecodeError):
                if is_done():
                    return
            for process, log in zip(self._processes, self._logs, strict=True):
                if process.poll() is not None:
                    said = log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
                    raise ServerFailed(f"a member of Hazelcast ended with status {process.returncode}: {said[-1]}")
            if time.monotonic() >= deadline:
                raise ServerFailed(f"Hazelcast's members did not {what} within {START_TIMEOUT_S:g} s")
            time.sleep(LOOK_PAUSE_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a member at once, also one that is stopped by a signal."""
    process.kill()
    process.wait()
