"""A cluster in the process of a test: its members are real ones, with sockets of their own, each on its own thread."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from phalanx.client.aio import connect
from phalanx.client.sync import Client
from phalanx.common.durations import Duration, to_seconds
from phalanx.common.errors import UnavailableError, UsageError
from phalanx.common.ids import Address
from phalanx.maps.time_limit import LONGEST_S
from phalanx.net.member_threads import refuse_to_block
from phalanx.runtime.settings.config import Config
from phalanx.testing.cuts import Cuts
from phalanx.testing.local_member import LocalMember
from phalanx.testing.wholeness import why_not_whole

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LOOK_AGAIN_AFTER_S = 0.01
UNTIL_WHOLE_S = 30.0

QUICK: dict[str, Any] = {
    "partition_count": 31,
    "heartbeat_interval_ms": 100,
    "heartbeat_timeout_ms": 2_000,
    "merge_interval_ms": 200,
    "join_retry_pause_ms": 100,
    "join_attempts": 1_000,  # a member that is cut off from one of the others waits for the end of the cut
    "claim_timeout_ms": 2_000,
    "call_timeout_ms": 10_000,
}
"""What these clusters have instead of the defaults of `Config`, so that a test need not wait: few partitions, and failures
that are found sooner than a service in production would like."""


class LocalCluster:
    """Members named A, B, C… in the process of a test. A context manager: at its end all members are killed.

    Its methods block. A test with an event loop can call all but `until_whole` and `stop` in it, which take milliseconds; for
    these two there is `asyncio.to_thread`.
    """

    def __init__(self, members: int = 3, **settings: Any) -> None:
        """Start this many members, and wait until the cluster is whole. `settings`: those of `Config`; address, cluster and seeds are
        given. Raises `UsageError` for a wrong setting or number, `UnavailableError` if they do not become whole.
        """
        if not isinstance(members, int) or not 1 <= members <= len(LETTERS):
            raise UsageError(f"members: give a number from 1 to {len(LETTERS)}, not {members!r}")
        for name in ("port", "seeds"):
            if name in settings:
                raise UsageError(f"{name}: a LocalCluster chooses it itself")
        self.name = settings.pop("cluster", f"test-{uuid.uuid4()}")
        """The cluster's name, which clients need; no other test has the same."""
        self._settings = QUICK | settings
        self._members: dict[str, LocalMember] = {}
        """By their names, also those that have ended."""
        self._cuts = Cuts()
        try:
            for _ in range(members):
                self.add()
            self.until_whole()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LocalCluster({', '.join(f'{each.name} {_state_of(each)}' for each in self._members.values())})"

    # --- whom it has -----------------------------------------------------------------------------------------------

    def __getitem__(self, which: int | str) -> LocalMember:
        """Return the member of that name or number; A is 0. Raises `UsageError`."""
        return self._members[self._name_of(which)]

    def __iter__(self) -> Iterator[LocalMember]:
        """Yield the members that run, in the order in which they were started first."""
        return iter([each for each in self._members.values() if each.is_running])

    def __len__(self) -> int:
        """Return how many members run; those that hang are counted."""
        return sum(1 for _ in self)

    @property
    def addresses(self) -> list[Address]:
        """The addresses of the members that run."""
        return [each.address for each in self]

    def config(self, **settings: Any) -> Config:
        """Return the settings with which a member of the tested program joins this cluster, at a free port.

        `settings`: those that are to be others. Such a member is the program's: it is neither killed nor cut off here, nor waited for.
        """
        given = {"port": 0, "cluster": self.name, "seeds": self._reachable()}
        return Config(**(self._settings | given | settings))

    def client(self, **arguments: Any) -> Client:
        """Return a blocking client of the cluster; `arguments` as for `Client`. The caller closes it."""
        return Client(self._reachable(), cluster=self.name, **arguments)

    def connect(self, **arguments: Any) -> Any:
        """Return an asyncio client of the cluster, for `async with` or `await`; `arguments` as for `connect`."""
        return connect(self._reachable(), cluster=self.name, **arguments)

    def _reachable(self) -> list[Address]:
        found = self.addresses
        if not found:
            raise UsageError("no member of this cluster runs")
        return found

    # --- what befalls it -------------------------------------------------------------------------------------------

    def add(self) -> LocalMember:
        """Start one more member. Raises `JoinFailed` if nobody admits it."""
        if len(self._members) == len(LETTERS):
            raise UsageError(f"a LocalCluster has had at most {len(LETTERS)} members")
        return self._start(LETTERS[len(self._members)], 0)

    def restart(self, which: int | str) -> LocalMember:
        """Start again a member that was killed or stopped, at its address and without its data."""
        before = self[which]
        if before.is_running:
            raise UsageError(f"member {before.name} runs; kill or stop it first")
        return self._start(before.name, int(before.address.rpartition(":")[2]))

    def kill(self, which: int | str) -> None:
        """End a member as if its process was killed: nothing is handed over, and its port is free."""
        self._running(which).kill()

    def stop(self, which: int | str) -> None:
        """Stop a member in order: it hands over what it holds, and leaves. Raises `UsageError` if it hangs."""
        member = self._running(which)
        if member.is_hung:
            raise UsageError(f"member {member.name} hangs: resume or kill it")
        member.stop()

    def hang(self, which: int | str) -> None:
        """Let a member do nothing any more, as a stopped process: its connections stay open, and nobody answers on them."""
        self._running(which).hang()

    def resume(self, which: int | str) -> None:
        """Let a member that hangs continue. Does nothing if it does not hang."""
        self._running(which).resume()

    def cut(self, sides: str) -> None:
        """Cut members off from each other: "A|B,C" cuts A from B and from C, and leaves B and C together. Cuts add up.

        Connections between the sides break, and no new ones open. Clients reach all members; who wants to see what a side
        sees asks a member of it: `cluster["A"].map(…)`. Raises `UsageError` if the text does not name sides, or names unknown members.
        """
        self._cuts.add(sides, self._name_of)
        self._tell_cuts()

    def heal(self) -> None:
        """End all cuts."""
        self._cuts.clear()
        self._tell_cuts()

    def until_whole(self, timeout: Duration = UNTIL_WHOLE_S) -> None:
        """Wait until the members that run, and do not hang, agree who they are, and hold all replicas that they should.

        While there are cuts, this holds for each side: a view of its own, with nobody who is cut off from another of its
        members. (Who reaches some members of each side and not all waits outside until the cut ends.) Raises `UnavailableError`, which says what is missing, if it takes longer than `timeout` seconds.
        """
        refuse_to_block()
        limit_s = to_seconds("timeout", timeout, "more than 0, at most a year", at_most=LONGEST_S)
        deadline = time.monotonic() + limit_s
        while why := self.why_not_whole():
            if time.monotonic() >= deadline:
                raise UnavailableError(f"not whole within {limit_s:g} s: {why}")
            time.sleep(LOOK_AGAIN_AFTER_S)

    def why_not_whole(self) -> str:
        """Return what `until_whole` would wait for now; empty: nothing."""
        own = {each.address for each in self._members.values()}
        return why_not_whole([each for each in self if each.is_present], own, self._cuts)

    def close(self) -> None:
        """Kill all members: a test that is over needs none of them to hand anything over."""
        running = list(self)
        for member in running:
            member.hang()  # first all of them, so that nobody sees another one die, and tells of a crash
        for member in running:
            member.kill()

    # --- means -----------------------------------------------------------------------------------------------------

    def _start(self, name: str, port: int) -> LocalMember:
        others = [each.address for each in self if each.is_present and not self._cuts.between(name, each.name)]
        settings = self._settings | {"port": port, "cluster": self.name, "seeds": others}
        member = LocalMember(name, Config(**settings))
        self._members[name] = member
        self._tell_cuts()
        return member

    def _tell_cuts(self) -> None:
        running = list(self)
        for one in running:
            one.cut_from({other.address for other in running if self._cuts.between(one.name, other.name)})

    def _running(self, which: int | str) -> LocalMember:
        member = self[which]
        if not member.is_running:
            raise UsageError(f"member {member.name} does not run")
        return member

    def _name_of(self, which: int | str) -> str:
        names = list(self._members)
        if isinstance(which, int) and not isinstance(which, bool) and 0 <= which < len(names):
            return names[which]
        if isinstance(which, str) and which in self._members:
            return which
        if isinstance(which, str) and which.isascii() and which.isdecimal() and int(which) < len(names):
            return names[int(which)]
        known = ", ".join(f"{name} ({number})" for number, name in enumerate(names))
        raise UsageError(f"no member {which!r}: the cluster has {known}")


def _state_of(member: LocalMember) -> str:
    return f"at {member.address}{' hangs' if member.is_hung else ''}" if member.is_running else "ended"
