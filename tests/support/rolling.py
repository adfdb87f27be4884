"""Real clusters whose members change their release one by one, and programs that write meanwhile."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from phalanx.common.view import MembersView
from phalanx.runtime.process.processes import PHALANX, MemberProcess, start_member_process

from . import released
from .processes import Cluster, wait_for

FAILOVER_S = 10.0
"""The default heartbeat_timeout_ms: the longest time until a member that fell silent has been replaced."""
OLD, NEW = released.command(), PHALANX


class Load:
    """Programs that write, each key once, and remember what was acknowledged and how long the longest call took."""

    def __init__(self, cluster: Cluster, pause_s: float = 0.002) -> None:
        """`pause_s`: between two writes, so that the cores are for the members."""
        self._cluster = cluster
        self._pause_s = pause_s
        self._stops = threading.Event()
        self.acknowledged: dict[str, int] = {}
        self.errors: list[str] = []
        self.longest_s = 0.0

    @contextmanager
    def running(self, writers: int = 2) -> Iterator[None]:
        threads = [threading.Thread(target=self._write, args=(number,)) for number in range(writers)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stops.set()
            for thread in threads:
                thread.join()

    def _write(self, number: int) -> None:
        with self._cluster.client() as grid:
            values = grid.map("written")
            for value in count():
                if self._stops.is_set():
                    return
                began = time.monotonic()
                try:
                    values[f"{number}-{value}"] = value
                    assert values[f"{number}-{value}"] == value
                except Exception as error:
                    self.errors.append(f"{type(error).__name__}: {error}")
                else:
                    self.acknowledged[f"{number}-{value}"] = value
                self.longest_s = max(self.longest_s, time.monotonic() - began)
                time.sleep(self._pause_s)

    def check(self) -> None:
        assert not self.errors, self.errors[:3]
        assert len(self.acknowledged) > 100
        with self._cluster.client() as grid:
            found = grid.map("written").get_all(self.acknowledged)
        assert found == self.acknowledged
        print(f"{len(self.acknowledged)} writes, the longest call took {self.longest_s:.2f} s")
        assert self.longest_s < FAILOVER_S


class Upgrade:
    """A cluster whose members change their release on their addresses."""

    def __init__(self, cluster: Cluster, members: int, *, http: bool = False) -> None:
        """`http`: members have an HTTP port, and keep it."""
        self.cluster = cluster
        cluster.start(members, wait=False, program=OLD, options=("--http-port=0",) if http else ())
        self.ports = [int(each.address.rpartition(":")[2]) for each in cluster.members]
        """Of the member at each place, also while there is none."""
        self.http_ports = [json.loads(each.ready_line)["http_port"] for each in cluster.members] if http else []
        self.wait_whole()

    def change(self, index: int, program: tuple[str, ...], *, kill: bool = False) -> None:
        """End the member at a place, and start one with another release on its address."""
        member = self.cluster.members[index]
        if kill:
            self.cluster.kill(member)
        else:
            assert self.cluster.terminate(member) == 0
        self.start(index, program)

    def start(self, index: int, program: tuple[str, ...]) -> None:
        """Start a member at a place where there is none at present."""
        cluster = self.cluster
        new = start_member_process(
            cluster.folder / f"member-{time.monotonic_ns()}.log",
            port=self.ports[index],
            seeds=[each.address for each in cluster.members],
            cluster=cluster.name,
            event_log=cluster.event_log,
            options=[f"--http-port={self.http_ports[index]}"] if self.http_ports else [],
            program=program,
        )
        cluster.adopt(new)
        cluster.members.insert(index, cluster.members.pop())
        self.wait_whole()

    def master(self) -> int:
        """The place of the master."""
        address = self.view().master.partition("/")[0]
        return next(place for place, each in enumerate(self.cluster.members) if each.address == address)

    def view(self, member: MemberProcess | None = None) -> MembersView:
        return self.cluster.view_of(member or self.cluster.members[0])

    def wait_whole(self) -> None:
        """Until all members have one list, and every partition its replicas."""
        cluster = self.cluster

        def agreed() -> bool:
            views = [self.view(member) for member in cluster.members]
            return all(view == views[0] for view in views) and len(views[0].members) == len(cluster.members)

        wait_for(agreed, "all members have one list")
        with cluster.client() as grid:
            grid.map("written").put("begun", 0)  # partitions are assigned when somebody uses them
        cluster.wait_redundant()
