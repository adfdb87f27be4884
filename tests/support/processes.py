"""Real member processes for tests: started, killed, paused and stopped; and conditions waited for, with a deadline.

    def test_something(cluster: Cluster) -> None:
        cluster.start(3)
        with cluster.client() as grid: ...
        cluster.kill(cluster.members[0])
        cluster.wait_redundant()

The fixture `cluster` (in `conftest.py`) stops everything at the end, and pytest shows the members' logs if the test failed.
"""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any, TypeVar

import phalanx
from phalanx.client.ask import Inquirer
from phalanx.common.errors import UnavailableError
from phalanx.common.view import MembersView
from phalanx.runtime.process.processes import PHALANX, MemberProcess, start_member_process, stop_all
from phalanx.wire.messages import TableReply

T = TypeVar("T")
PORTS = 12_000
"""Ports from 20,000 on that tests take."""
DEADLINE_S = 30.0


def wait_for(
    condition: Callable[[], T | None],
    what: str,
    deadline_s: float = DEADLINE_S,
    seen: Callable[[], str] = lambda: "",
) -> T:
    """The first true answer of the condition; a member that cannot be asked for the moment counts as no answer.

    `seen` tells in the end what was there instead.
    """
    deadline = time.monotonic() + deadline_s
    pause_s = 0.02
    while True:
        problem = ""
        try:
            found = condition()
        except UnavailableError as error:
            found, problem = None, f" ({error})"
        if found:
            return found
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {deadline_s:g} s: {what}{problem} {seen()}".rstrip())
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, 0.2)  # whoever is asked all the time has less time to do what is waited for


def _walk_ports() -> Iterator[int]:
    """Yield ports below those that the system gives to connections, from a place of this process's own.

    None is given twice within a minute, so that no two tests choose the same one, in this process or, where others run beside it, in two.
    """
    first = os.getpid() * 97
    for step in count():
        yield 20_000 + (first + step) % PORTS


_PORTS = _walk_ports()


def free_port() -> int:
    """A port of 127.0.0.1 at which nobody listens now, and that the system gives to no connection."""
    return int(free_ports(1).partition("-")[0])


def free_ports(many: int) -> str:
    """A range of so many such ports."""
    found: list[int] = []
    for port in islice(_PORTS, PORTS):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            found = []
            continue
        found = [*found, port] if found and port == found[-1] + 1 else [port]
        if len(found) == many:
            return f"{found[0]}-{found[-1]}"
    raise AssertionError("no free range of ports")


class Cluster:
    """Member processes of one cluster, and what they say of it."""

    def __init__(self, folder: Path, name: str = "test") -> None:
        self.folder = folder
        self.name = name
        self.members: list[MemberProcess] = []
        """Those that were started and not killed or stopped by this object, in the order of their start."""
        self._started: list[MemberProcess] = []
        self._paused: list[MemberProcess] = []

    @property
    def event_log(self) -> Path:
        """Where the members append their events."""
        return self.folder / "events"

    @property
    def addresses(self) -> str:
        """Of all members, as a client takes them."""
        return ",".join(member.address for member in self.members)

    def start(
        self,
        count: int = 1,
        *,
        wait: bool = True,
        options: tuple[str, ...] = (),
        program: tuple[str, ...] = PHALANX,
    ) -> list[MemberProcess]:
        """Start members that join through those that are there, and wait until all have joined.

        The first member of a cluster is awaited by itself, so that it is the oldest: the master.
        """
        new = []
        for _ in range(count):
            member = start_member_process(
                self.folder / f"member-{len(self._started)}.log",
                seeds=[other.address for other in self.members if other not in new or other is self.members[0]],
                cluster=self.name,
                event_log=self.event_log,
                options=options,
                program=program,
            )
            self._started.append(member)
            self.members.append(member)
            new.append(member)
            if len(self.members) == 1:
                member.wait_ready()
        if wait:
            self.wait_views()
        return new

    def adopt(self, member: MemberProcess) -> None:
        """Look after a member that the test started itself: on a port of its choice, say."""
        self._started.append(member)
        self.members.append(member)

    def kill(self, member: MemberProcess) -> None:
        """Crash a member, and wait until the operating system has ended it."""
        member.kill()
        member.wait()
        self.members.remove(member)

    def pause(self, member: MemberProcess) -> None:
        """Let a member hang."""
        member.signal(signal.SIGSTOP)
        self._paused.append(member)

    def resume(self, member: MemberProcess) -> None:
        """Let a paused member go on."""
        member.signal(signal.SIGCONT)
        if member in self._paused:
            self._paused.remove(member)

    def terminate(self, member: MemberProcess, timeout_s: float = 60.0) -> int:
        """Let a member hand over what it holds and leave; its exit status."""
        member.signal(signal.SIGTERM)
        status = member.wait(timeout_s)
        self.members.remove(member)
        return status

    def client(self, **options: Any) -> phalanx.Client:
        """A blocking client."""
        return phalanx.Client(self.addresses, cluster=self.name, **options)

    def view_of(self, member: MemberProcess) -> MembersView:
        """The member list that a member has installed."""
        with Inquirer(member.address, cluster=self.name) as inquirer:
            return inquirer.members().view

    def table_of(self, member: MemberProcess) -> TableReply:
        """The partition table that a member has installed, and its view; does not assign partitions."""
        with Inquirer(member.address, cluster=self.name) as inquirer:
            return inquirer.table()

    def wait_views(self, deadline_s: float = DEADLINE_S) -> MembersView:
        """Until every member that should be there has one and the same list, of exactly these members."""

        def agreed() -> MembersView | None:
            views = [self.view_of(member) for member in self.members]
            addresses = {member.partition("/")[0] for member in views[0].members}
            is_whole = addresses == {member.address for member in self.members}
            return views[0] if is_whole and all(view == views[0] for view in views) else None

        return wait_for(agreed, f"all of {self.addresses} have one member list", deadline_s)

    def wait_redundant(self, backup_count: int = 1, deadline_s: float = DEADLINE_S) -> TableReply:
        """Until every partition has all the replicas that the number of members allows, in everybody's table."""
        wanted = min(backup_count + 1, len(self.members))

        def redundant() -> TableReply | None:
            replies = [self.table_of(member) for member in self.members]
            first = replies[0]
            is_complete = all(len(row) == wanted for row in first.table.rows)
            is_alive = {a.partition("/")[0] for a in first.table.members} <= {m.address for m in self.members}
            is_agreed = all(reply.table == first.table for reply in replies)
            return first if is_complete and is_alive and is_agreed else None

        return wait_for(redundant, f"every partition has {wanted} replicas", deadline_s)

    def stop(self) -> None:
        """End all processes that this object started, paused ones too."""
        for member in self._paused:
            # It would be killed, too, but only when it has not ended for seconds.
            member.kill()
        stop_all(self._started)

    def logs(self) -> str:
        """What all members wrote, for the report of a test that failed."""
        return "\n".join(f"--- {member!r}\n{member.log.read_text()}" for member in self._started)
