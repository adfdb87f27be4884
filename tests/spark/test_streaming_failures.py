"""Streams whose driver, executors or members are killed: every change once, every batch once."""

import itertools
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.client.ask import Inquirer
from phalanx.client.blocking.journal import Journal
from phalanx.common.map_settings import JournalSettings, MapChange
from spark.drivers import DEADLINE_S, Driver
from support.processes import Cluster, wait_for
from support.stored_clusters import StoredCluster

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

CHANGES = "kind string, key string, new struct<n:bigint>, old struct<n:bigint>, partition int, sequence bigint"
Json = dict[str, Any]


def options(cluster: Cluster, name: str, **more: str) -> dict[str, str]:
    return {"members": cluster.addresses, "cluster": cluster.name, "map": name} | more


def turn_on(cluster: Cluster, name: str) -> None:
    with Inquirer(cluster.members[0].address, cluster=cluster.name) as master:
        master.change_map(name, MapChange(journal=JournalSettings(100_000)))


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[list[Driver]]:
    made: list[Driver] = []
    yield made
    for driver in made:
        driver.close()
        print(driver.tail())


class Writer:
    """Writes to a map until it is told to stop; what it wrote last of each key, once that is known for certain."""

    def __init__(self, cluster: Cluster, name: str, patience_s: float = 30.0) -> None:
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self.count = 0
        client = cluster.client(call_timeout_s=patience_s)
        self._thread = threading.Thread(target=self._run, args=(client, name))
        self._thread.start()

    def _run(self, client: Any, name: str) -> None:
        try:
            with client:
                flights = client.map(name)
                for number in itertools.count():
                    if self._stopping.wait(0.01):
                        return
                    key = f"k{number * 7919 % 101}"
                    if number % 5 == 4:
                        flights.remove(key)
                    else:
                        flights.put(key, {"n": number})
                    self.count += 1
        except BaseException as error:
            self._error = error

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        if self._error is not None:
            raise self._error


def committed(folder: Path) -> list[Json]:
    """The rows of the files that Spark's own file sink has committed."""
    paths: set[str] = set()
    for log in sorted((folder / "_spark_metadata").glob("[0-9]*")):
        lines = log.read_text().splitlines()[1:]
        paths |= {json.loads(line)["path"].removeprefix("file://") for line in lines if line}
    return [json.loads(line) for path in sorted(paths) for line in Path(path).read_text().splitlines()]


def check_history(rows: list[Json], content: dict[str, int]) -> None:
    """Each event once; every one leads on from the one before of its key; the last ones are what the map holds."""
    rows.sort(key=lambda row: (row["partition"], row["sequence"]))
    for _, group in itertools.groupby(rows, key=lambda row: row["partition"]):
        numbers = [row["sequence"] for row in group]
        assert numbers == list(range(len(numbers)))
    held: dict[str, int] = {}
    for row in rows:
        assert row.get("old", {}).get("n") == held.pop(row["key"], None), row
        if row["kind"] != "removed":
            held[row["key"]] = row["new"]["n"]
    assert held == content


def test_a_stream_misses_nothing_and_repeats_nothing_when_members_and_its_driver_are_killed(
    cluster: Cluster, tmp_path: Path, drivers: list[Driver]
) -> None:
    cluster.start(3)
    turn_on(cluster, "flights")
    given = {
        "source": {"options": options(cluster, "flights", maxEventsPerTrigger="4000"), "schema": CHANGES},
        "sink": {"files": str(tmp_path / "out")},
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    writer = Writer(cluster, "flights")
    try:
        drivers.append(Driver(tmp_path / "first", **given))
        drivers[0].wait_batches(1)
        cluster.kill(cluster.members[1])
        at = max(2, *(int(line.split()[1]) + 2 for line in drivers[0].said if line.startswith("batch")))
        drivers[0].wait_batches(at)
        drivers[0].kill()
        cluster.start(1)  # partitions migrate to it
        cluster.wait_redundant()
        given["source"]["options"] |= {"members": cluster.addresses}  # type: ignore[index]
        drivers.append(Driver(tmp_path / "second", **given))
        drivers[1].wait_batches(at + 2)
    finally:
        writer.stop()
    with cluster.client() as client:
        events = sum(bounds.end for bounds in Journal("flights", client).bounds().values())
        assert events > 500
        wait_for(lambda: len(committed(tmp_path / "out")) >= events, f"{events} changes have come", DEADLINE_S)
        drivers[1].stop()
        content = {key: value["n"] for key, value in client.map("flights").iter_items()}
    check_history(committed(tmp_path / "out"), content)


# --- sink -----------------------------------------------------------------------------------------------------------

ROWS = "key string, n bigint, gone boolean"
FILES = 4
MARK = {"n": -1}
"""What somebody else writes in the meantime."""


def rows_of(number: int) -> list[Json]:
    """The rows of one batch: keys of its own, keys of the batch before that it changes, and some that it removes."""
    own = [{"key": f"b{number}-{row}", "n": number, "gone": False} for row in range(200)]
    before = [{"key": f"b{number - 1}-{row}", "n": 100 + number, "gone": row % 3 == 0} for row in range(60)]
    return own + (before if number else [])


def model(batches: int) -> dict[str, int]:
    """What the map holds behind so many batches."""
    held: dict[str, int] = {}
    for row in itertools.chain(*map(rows_of, range(batches))):
        held.pop(row["key"], None)
        if not row["gone"]:
            held[row["key"]] = row["n"]
    return held


def files_to_map(cluster: Cluster, folder: Path, **more: Any) -> Json:
    """A query that writes files of rows into a map, one in each batch."""
    (folder / "in").mkdir(exist_ok=True)
    for number in range(FILES):
        (folder / "in" / f"{number}.json").write_text("\n".join(map(json.dumps, rows_of(number))))
        os.utime(folder / "in" / f"{number}.json", (number + 1, number + 1))  # Spark takes the oldest first
    return {
        "source": {"files": str(folder / "in"), "schema": ROWS},
        "sink": {"options": options(cluster, "flights", deleteColumn="gone")},
        "checkpoint": str(folder / "checkpoint"),
    } | more


def content(cluster: Cluster) -> dict[str, int]:
    with cluster.client() as client:
        return {key: value["n"] for key, value in client.map("flights").iter_items()}


@pytest.mark.parametrize("where", ["before", "behind"])
def test_a_batch_is_applied_once_when_its_driver_is_killed_at_the_commit(
    cluster: Cluster, tmp_path: Path, drivers: list[Driver], where: str
) -> None:
    cluster.start(2)
    given = files_to_map(cluster, tmp_path)
    drivers.append(Driver(tmp_path / "first", **given, hold={"where": where, "batch": 1}))
    drivers[0].wait_held()
    drivers[0].kill()
    assert content(cluster) == model(1 if where == "before" else 2)
    with cluster.client() as client:
        client.map("flights")["b1-199"] = MARK
    drivers.append(Driver(tmp_path / "second", **given))
    drivers[1].wait_batches(FILES - 1)
    drivers[1].stop()
    assert content(cluster) == model(FILES) | ({"b1-199": -1} if where == "behind" else {})


def test_a_batch_is_applied_once_everywhere_when_its_driver_is_killed_while_half_of_the_partitions_have_it(
    cluster: Cluster, tmp_path: Path, drivers: list[Driver]
) -> None:
    cluster.start(2)
    given = files_to_map(cluster, tmp_path)
    drivers.append(Driver(tmp_path / "first", **given, hold={"where": "inside", "batch": 1}))
    drivers[0].wait_held()
    drivers[0].kill()
    half = content(cluster)
    applied = sorted(int(key.removeprefix("b1-")) for key in half if key.startswith("b1-"))
    assert 0 < len(applied) < 200
    marked = f"b1-{applied[-1]}"
    assert model(FILES)[marked] == 1, "no later batch changes it"
    with cluster.client() as client:
        client.map("flights")[marked] = MARK
    drivers.append(Driver(tmp_path / "second", **given))
    drivers[1].wait_batches(FILES - 1)
    drivers[1].stop()
    assert content(cluster) == model(FILES) | {marked: -1}


def test_a_batch_is_applied_when_a_member_is_killed_between_its_tasks_and_the_commit(
    cluster: Cluster, tmp_path: Path, drivers: list[Driver]
) -> None:
    cluster.start(3)
    drivers.append(Driver(tmp_path, **files_to_map(cluster, tmp_path), hold={"where": "before", "batch": 1}))
    drivers[0].wait_held()
    cluster.kill(cluster.members[2])
    drivers[0].release()
    drivers[0].wait_batches(FILES - 1)
    drivers[0].stop()
    assert content(cluster) == model(FILES)


def test_the_copy_of_a_map_is_the_same_when_a_member_and_the_driver_were_killed(
    cluster: Cluster, tmp_path: Path, drivers: list[Driver]
) -> None:
    cluster.start(3)
    turn_on(cluster, "origin")
    given = {
        "source": {
            "options": options(cluster, "origin", maxEventsPerTrigger="300"),
            "schema": CHANGES,
            "select": ["kind", "key", "new.*"],
        },
        "sink": {"options": options(cluster, "flights", deleteColumn="kind")},
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    writer = Writer(cluster, "origin")
    try:
        drivers.append(Driver(tmp_path / "first", **given, hold={"where": "behind", "batch": 2}))
        drivers[0].wait_batches(0)
        cluster.kill(cluster.members[1])
        drivers[0].wait_held()
        drivers[0].kill()
        drivers.append(Driver(tmp_path / "second", **given))
        drivers[1].wait_batches(3)
    finally:
        writer.stop()
    with cluster.client() as client:
        expected = {key: value["n"] for key, value in client.map("origin").iter_items()}
    wait_for(lambda: content(cluster) == expected, "the copy is the same", DEADLINE_S)
    drivers[1].stop()
    assert content(cluster) == expected


@pytest.mark.parametrize("where", ["task", "before"])
def test_a_batch_is_applied_once_when_an_executor_is_killed(
    cluster: Cluster, tmp_path: Path, drivers: list[Driver], where: str
) -> None:
    cluster.start(2)
    given = files_to_map(cluster, tmp_path, master="local-cluster[2,1,1024]")
    drivers.append(Driver(tmp_path, **given, hold={"where": where, "batch": 1}))
    drivers[0].wait_held()
    executors = drivers[0].executors()
    assert len(executors) == 2
    if where == "task":
        worker = int(drivers[0].flag.read_text())
        executors = [process for process in executors if is_above(process, worker)]
    os.kill(executors[0], signal.SIGKILL)
    drivers[0].release()
    drivers[0].wait_batches(FILES - 1)
    drivers[0].stop()
    assert content(cluster) == model(FILES)


def is_above(process: int, below: int) -> bool:
    """Whether a process was started, directly or not, by the other one."""
    while below > 1:
        if below == process:
            return True
        below = int(Path(f"/proc/{below}/stat").read_text().rpartition(")")[2].split()[1])
    return False


# --- all members end, and come back with their folders ----------------------------------------------------------------


def end_all(stored: StoredCluster, how: str) -> None:
    """End all members at one moment, and start them again."""
    if how == "killed":
        stored.kill()
    else:
        assert set(stored.terminate_all()) == {0}
    stored.start((1, 0))


def two_stored(cluster: Cluster) -> StoredCluster:
    """Start two members with folders, and one backup."""
    stored = StoredCluster(cluster, "--backup-count=1")
    stored.start(range(2))
    return stored


@pytest.mark.parametrize("driver", ["killed", "alive"])
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_batch_is_applied_once_everywhere_when_all_members_end_while_half_of_the_partitions_have_it(
    cluster: Cluster, tmp_path: Path, drivers: list[Driver], how: str, driver: str
) -> None:
    stored = two_stored(cluster)
    given = files_to_map(cluster, tmp_path)
    drivers.append(Driver(tmp_path / "first", **given, hold={"where": "inside", "batch": 1}))
    drivers[0].wait_held()
    half = content(cluster)
    marked = max((key for key in half if key.startswith("b1-")), key=lambda key: int(key.removeprefix("b1-")))
    assert model(FILES)[marked] == 1, "no later batch changes it"
    if driver == "killed":
        drivers[0].kill()
    end_all(stored, how)
    assert content(cluster) == half
    with cluster.client() as client:
        client.map("flights")[marked] = MARK
    if driver == "killed":
        drivers.append(Driver(tmp_path / "second", **given))
    else:
        drivers[0].release()
    drivers[-1].wait_batches(FILES - 1)
    drivers[-1].stop()
    assert content(cluster) == model(FILES) | {marked: -1}


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_stream_that_goes_on_misses_nothing_and_repeats_nothing_when_all_members_end(
    cluster: Cluster, tmp_path: Path, drivers: list[Driver], how: str
) -> None:
    stored = two_stored(cluster)
    turn_on(cluster, "flights")
    source = {"options": options(cluster, "flights", maxEventsPerTrigger="4000"), "schema": CHANGES}
    given = {
        "source": source,
        "sink": {"files": str(tmp_path / "out")},
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    writer = Writer(cluster, "flights", 100)
    try:
        drivers.append(Driver(tmp_path / "first", **given))
        drivers[0].wait_batches(1)
        end_all(stored, how)
        written = writer.count
        wait_for(lambda: writer.count > written + 100, "its writer goes on")
    finally:
        writer.stop()
    with cluster.client() as client:
        events = sum(bounds.end for bounds in Journal("flights", client).bounds().values())
        wait_for(lambda: len(committed(tmp_path / "out")) >= events, f"{events} changes have come", DEADLINE_S)
        drivers[0].stop()
        expected = {key: value["n"] for key, value in client.map("flights").iter_items()}
    check_history(committed(tmp_path / "out"), expected)
