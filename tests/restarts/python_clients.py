"""Programs with Phalanx's own clients that go on while the whole cluster is restarted, and what they left in it before."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import phalanx
from phalanx.client.ask import Inquirer
from phalanx.client.staging import StagedRows, Staging, new_job_id
from phalanx.codec.hashing import partition_of
from phalanx.codec.values import keys_to_data, to_key_data, values_to_data
from phalanx.common.map_settings import JournalSettings, MapChange
from phalanx.maps.journals import JournalEvent, Position
from support.processes import Cluster, wait_for

EACH = 200
LONG_S = 3_600
LEASE_S = 60.0
"""Of locks that are held throughout: longer than everything is off."""
ABANDONED_LEASE_S = 2.0
PATIENCE_S = 100.0
"""For how long a call is repeated: longer than everything is off."""
THREADS = 2
HALF_DONE = 3
"""Calls of each kind that are half done when all members are killed."""


class Counting:
    """Programs that count in the grid, each call after the answer of the one before."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.answers: dict[str, list[int]] = {
            name: [] for name in (*(f"thread {each}" for each in range(THREADS)), "asyncio")
        }
        self._is_over = threading.Event()
        self._pool = ThreadPoolExecutor(len(self.answers))
        self._running: list[Future[None]] = []

    def begin(self) -> None:
        for name in self.answers:
            self._running.append(self._pool.submit(self._count_in_asyncio if name == "asyncio" else self._count, name))
        self.wait_further(20)

    def wait_further(self, calls: int) -> None:
        """Until each has got so many more answers; raises what has ended one of them."""
        aims = {name: len(got) + calls for name, got in self.answers.items()}

        def are_there() -> bool:
            for each in self._running:
                if each.done():
                    each.result()
            return all(len(self.answers[name]) >= aim for name, aim in aims.items())

        wait_for(are_there, "all count on", seen=lambda: str({name: len(got) for name, got in self.answers.items()}))

    def end(self) -> None:
        """Raises what has ended one of them."""
        self._is_over.set()
        for each in self._running:
            each.result()

    def stop(self) -> None:
        self._is_over.set()
        self._pool.shutdown()

    def _count(self, name: str) -> None:
        with self._cluster.client(call_timeout_s=PATIENCE_S) as grid:
            while not self._is_over.is_set():
                self.answers[name].append(grid.map("counted").increment(name))

    def _count_in_asyncio(self, name: str) -> None:
        async def count() -> None:
            cluster = self._cluster
            async with phalanx.connect(cluster.addresses, cluster=cluster.name, call_timeout_s=PATIENCE_S) as grid:
                while not self._is_over.is_set():
                    self.answers[name].append(await grid.map("counted").increment(name))

        asyncio.run(count())


class HalfDone:
    """Calls that an owner has carried out and not answered, because a backup hangs, when all members are killed."""

    def __init__(self, grid: phalanx.Client) -> None:
        self._map = grid.map("half done")
        self._grid = grid
        self._pool = ThreadPoolExecutor(4 * HALF_DONE)
        self.answers: dict[str, tuple[Future[Any], Any]] = {}
        """By key: the answer of the call, and what it has to be."""
        self.content: dict[str, Any] = {}
        """What the map holds when each call has had its effect once."""

    def begin(self, hanging: str) -> None:
        """Make the calls, on keys that the member at this address backs up, and wait until their owners have carried them out."""
        rows = self._grid.refresh()
        keys = iter(
            key
            for key in map(str, range(100_000))
            if str(rows.replicas(partition_of(to_key_data(key), rows.partition_count))[1]).startswith(f"{hanging}/")
        )
        for _ in range(HALF_DONE):
            self._call(next(keys), 1, 1, self._map.increment)
            self._call(next(keys), None, "mine", lambda key: self._map.put_if_absent(key, "mine"))
            self._call(next(keys), None, "mine", lambda key: self._map.get_and_put(key, "mine"))

    def _call(self, key: str, answer: Any, left: Any, call: Callable[[str], Any]) -> None:
        self.answers[key] = self._pool.submit(call, key), answer
        self.content[key] = left

    def wait_carried_out(self, reader: phalanx.Client) -> None:
        wait_for(lambda: reader.map("half done").get_all(list(self.content)) == self.content, "the owners have all")
        assert not any(answer.done() for answer, _ in self.answers.values())

    def stop(self) -> None:
        self._pool.shutdown(cancel_futures=True)


class StagedJobs:
    """Jobs that have begun to write rows before everything ends: none of their rows is visible yet."""

    def __init__(self, grid: phalanx.Client) -> None:
        self._grid = grid
        grid.map("replaced").put_all(dict.fromkeys(range(EACH), "old"))
        self.applied, self.replaced = (Staging(grid, name, new_job_id()) for name in ("applied", "replaced"))
        self.rows = [self.stage(self.applied)]
        self.replaced.prepare_replace([self.stage(self.replaced)])

    def stage(self, job: Staging, attempt: str = "t1") -> StagedRows:
        """Stage rows of a job, the same ones each time."""
        rows = job.attempt(attempt)
        rows.put_rows(keys_to_data(list(range(EACH))), values_to_data(["new"] * EACH))
        return rows.staged()

    def again(self) -> tuple[Staging, list[StagedRows]]:
        """Stage the same rows by another run of the first job."""
        job = Staging(self._grid, "applied", new_job_id())
        return job, [self.stage(job)]


class PythonClients:
    """What programs wrote, hold and were doing. `client` is theirs from the beginning to the end."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.kept: dict[str, int] = {}
        self.removed: set[str] = set()
        self.tokens: list[int] = []
        self.events: dict[int, Position] = {}
        """By partition: behind the last event of the journal that a reader has taken."""
        self.client = cluster.client(call_timeout_s=PATIENCE_S)
        self.counting = Counting(cluster)
        self.half_done = HalfDone(self.client)

    def write(self) -> None:
        self._write_entries()
        self._take_locks()
        self._follow_changes()
        self.jobs = StagedJobs(self.client)

    def _write_entries(self) -> None:
        entries = self.client.map("kept")
        entries.put_all({f"k{number}": number for number in range(EACH)})
        entries.increment("k1", 100)
        self.removed = {f"k{number}" for number in range(0, EACH, 5)}
        for key in self.removed:
            del entries[key]
        entries.put("long", 1, ttl=LONG_S)
        self.kept = {f"k{number}": number for number in range(EACH) if number % 5} | {"k1": 101, "long": 1}
        cleared = self.client.map("cleared")
        cleared.put_all({number: number for number in range(EACH)})
        cleared.clear()

    def _take_locks(self) -> None:
        self.held = self.client.lock("held", lease=LEASE_S)
        self.permits = [self.client.semaphore("permits", 3, lease=LEASE_S) for _ in range(2)]
        for each in (self.held, *self.permits):
            assert each.acquire(wait=0)
        self.tokens = [self.held.token]
        for _ in range(5):
            with self.client.map("guarded").lock("key") as lock:
                self.client.map("guarded").put("key", lock.token, fence=lock.token)
                self.tokens.append(lock.token)
        # Nobody renews the lock of a thread that has ended.
        leaver = threading.Thread(target=self.client.lock("abandoned", lease=ABANDONED_LEASE_S).acquire)
        leaver.start()
        leaver.join()

    def _follow_changes(self) -> None:
        with Inquirer(self._cluster.members[0].address, cluster=self._cluster.name) as master:
            master.change_map("followed", MapChange(journal=JournalSettings(1_000)))
        followed = self.client.map("followed")
        followed.put_all(dict.fromkeys(range(EACH), "before"))
        self.events = {
            p: Position(each.lineage, each.end) for p, each in self.client.journal("followed").bounds().items()
        }
        followed[EACH] = "not read yet"

    def read_on(self) -> list[JournalEvent]:
        """What has come in the journal behind what its reader has taken."""
        journal, found = self.client.journal("followed"), list[JournalEvent]()
        for partition, at in self.events.items():
            page = journal.read(partition, *at)
            while page.events:
                found += page.events
                page = journal.read(partition, *page.next)
        return found

    def write_mortal(self, ttl_s: float) -> None:
        """Write entries with this time to live."""
        self.client.map("mortal").put_all({number: number for number in range(EACH)}, ttl=ttl_s)

    def leave_calls_half_done(self, hanging: str) -> None:
        with self._cluster.client() as reader:
            self.half_done.begin(hanging)
            self.half_done.wait_carried_out(reader)

    def close(self) -> None:
        self.counting.stop()
        self.half_done.stop()
        self.client.close()
