"""A cluster whose members all end and come back with their folders, with clients of every kind that were there before."""

import subprocess
import time
from contextlib import ExitStack, closing

from phalanx.runtime.process.processes import PHALANX
from restarts.hazelcast_clients import HazelcastClients
from restarts.python_clients import PythonClients
from restarts.redis_clients import RedisClients
from support.stored_clusters import StoredCluster

PLACES = range(2)
OPTIONS = ("--backup-count=1", "--partition-count=31", "--serve=redis,hazelcast")
MORTAL_S = 3.0
"""The times to live that end while everything is off."""


class Restarted:
    """A cluster of two members that has been off, and its clients of before."""

    def __init__(self, stored: StoredCluster, stack: ExitStack) -> None:
        self._stored = stored
        self.cluster = stored.cluster
        stored.start(PLACES)
        self.python = stack.enter_context(closing(PythonClients(self.cluster)))
        self.redis = stack.enter_context(closing(RedisClients(self.cluster)))
        self.hazelcast = stack.enter_context(closing(HazelcastClients(self.cluster)))
        self._all = (self.python, self.redis, self.hazelcast)

    def prepare(self) -> None:
        """Write, and leave programs that go on."""
        for clients in self._all:
            clients.write()
        self.cluster.wait_redundant()
        self.python.counting.begin()

    def restart(self, how: str) -> None:
        """End everything at one moment, and start it when the times to live of the mortal entries are over."""
        for clients in self._all:
            clients.write_mortal(MORTAL_S)
        over = time.monotonic() + MORTAL_S
        if how == "killed":
            self._kill_while_a_backup_hangs()
        else:
            self._stop_all()
        time.sleep(max(0.0, over - time.monotonic()))
        self._stored.start(reversed(PLACES))

    def _kill_while_a_backup_hangs(self) -> None:
        hanging = self._stored.member(PLACES[-1])
        self.cluster.pause(hanging)
        self.python.leave_calls_half_done(hanging.address)
        self._stored.kill()

    def _stop_all(self) -> None:
        command = [*PHALANX, "stop", "--all", "--at", self._stored.member(1).address, "--cluster", self.cluster.name]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 0, ended.stderr
        assert set(self._stored.wait_ended()) == {0}
