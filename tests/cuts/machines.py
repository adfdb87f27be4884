"""A cluster with each member on a host of its own, and what its members and clients say while links are cut.

Members are named N1, N2, … by age when all have joined, as the references draw them; a name stays with its host. Nothing
here is asserted to be fast: conditions are waited for, up to `SETTLE_S`.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import phalanx
from cuts.network import Network
from phalanx.client.ask import Inquirer
from phalanx.common.errors import UnavailableError
from phalanx.common.ids import Address
from phalanx.common.map_settings import MapChange
from phalanx.common.table import HOLE
from phalanx.runtime.process.processes import MemberProcess, start_member_process, stop_all
from phalanx.wire.messages import MembersReply, TableReply
from support.processes import wait_for
from support.views_on_disk import ViewsOnDisk

SETTLE_S = 90.0
CLUSTER = "cuts"
HASTY = {
    "heartbeat_interval_ms": 250,
    "heartbeat_timeout_ms": 5_000,
    "claim_timeout_ms": 3_000,
    "merge_interval_ms": 500,
    "join_attempts": 60,
    "join_timeout_ms": 2_000,
    "partition_count": 31,
}
"""Settings of the members: short timeouts."""
STORED = {f"key-{number}": number for number in range(300)}
"""Entries in each partition."""


class Machines:
    """Hosts with a member on each. Stop it, or use it as a context manager."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.network = network
        self.folder = folder
        self.event_log = folder / "events"
        self.secret_file = folder / "secret"
        self.secret_file.write_text("a secret for these machines only\n")
        self.secret_file.chmod(0o600)
        self._hosts: dict[str, str] = {}
        """Name of a member to its host."""
        self._processes: list[MemberProcess] = []

    def __enter__(self) -> "Machines":
        return self

    def __exit__(self, *_: object) -> None:
        stop_all(self._processes)

    # --- the cluster -----------------------------------------------------------------------------------------------

    def start(self, names: str = "", **settings: Any) -> None:
        """Start a member on each host, wait until all have one list, and name them by age: N1, N2, … or as given."""
        config = self.folder / "member.toml"
        lines = (f"{name} = {json.dumps(value)}\n" for name, value in (HASTY | settings).items())
        config.write_text("".join(lines))
        first, *others = self.network.hosts
        self._start(first, config, ()).wait_ready()
        for host in others:
            self._start(host, config, (f"{first}:5701",))
        for process in self._processes:
            process.wait_ready(SETTLE_S)
        self._hosts = {host: host for host in self.network.hosts}
        view = wait_for(lambda: self._whole(first), f"one list of {len(self._hosts)} members", SETTLE_S)
        given = names.split() or [f"N{age}" for age in range(1, len(self._hosts) + 1)]
        self._hosts = dict(zip(given, map(_host_of, view.view.members), strict=True))
        self.wait_lists({self.everybody: self.everybody})

    def fill(self) -> None:
        """Store `STORED`, and wait until all replicas are there."""
        with self.client("N1") as grid:
            grid.call("stored", "put_all", STORED)
        self.wait_whole(self.everybody)

    def check_filled(self, at: str) -> None:
        """A client on that host reads what `fill` stored."""
        with self.client(at) as grid:
            assert grid.items("stored") == STORED

    @property
    def everybody(self) -> str:
        """All names, as `wait_lists` takes them."""
        return " ".join(self._hosts)

    def cut(self, one: str, other: str) -> None:
        """Break all links between two groups of members, in both directions."""
        self.network.cut(self._on(one), self._on(other))

    def cut_one_way(self, by: str, to: str) -> None:
        """What the former send does not arrive at the latter."""
        self.network.cut_one_way(self._on(by), self._on(to))

    def heal(self) -> None:
        """All links are whole again."""
        self.network.heal()

    def addresses(self, names: str) -> str:
        """Of these members, as a client takes them."""
        return ",".join(f"{host}:5701" for host in self._on(names))

    @contextlib.contextmanager
    def client(self, at: str, **options: Any) -> Iterator["LocalClient"]:
        """A client on the host of a member that is told the addresses of all."""
        local = LocalClient(self, self._hosts[at], {"connect_timeout_s": 20.0, "call_timeout_s": 20.0} | options)
        try:
            yield local
        finally:
            local.close()

    def on_host(self, name: str) -> contextlib.AbstractContextManager[None]:
        """This thread is on the host of that member."""
        return self.network.inside(self._hosts[name])

    def connect(self) -> Any:
        """A connection for asyncio, for use `on_host`."""
        return phalanx.connect(self.addresses(self.everybody), cluster=CLUSTER, secret_file=self.secret_file)

    def change_map(self, at: str, name: str, change: MapChange) -> None:
        """Have the master of that member's cluster change the settings of a map."""
        master = self.said_by(at).view.master
        self._ask(_host_of(master), lambda inquirer: inquirer.change_map(name, change))

    # --- what members say ------------------------------------------------------------------------------------------

    def said_by(self, name: str) -> MembersReply:
        """What that member says of its cluster, asked on its own host: no cut is in between."""
        said: MembersReply = self._ask(self._hosts[name], Inquirer.members)
        return said

    def table_of(self, name: str) -> TableReply:
        """The partition table of that member."""
        said: TableReply = self._ask(self._hosts[name], Inquirer.table)
        return said

    def list_of(self, name: str) -> str:
        """Names of the members in that member's list, by age."""
        return self.named(self.said_by(name).view.members)

    def wait_lists(self, wanted: dict[str, str]) -> None:
        """Until all members of each group have one and the same list: of exactly these members, in that order.

        A list that begins with `?` is in any order.
        """
        wait_for(
            lambda: all(self._is_list(group, members) for group, members in wanted.items()),
            f"the lists {wanted}",
            SETTLE_S,
            self.seen,
        )

    def wait_one_cluster(self) -> None:
        """Until all members are in one cluster again, and every partition has its replicas."""
        self.wait_lists({self.everybody: f"? {self.everybody}"})
        self.wait_whole(self.everybody)

    def wait_whole(self, names: str) -> None:
        """Until these members have one table, in which every partition has as many replicas as members allow."""
        group = names.split()
        here = set(self._on(names))

        def is_whole() -> bool:
            tables = [self.table_of(name).table for name in group]
            first = tables[0]
            wanted = min(first.maps.depth + 1, len(group))
            placed = all(
                sum(_host_of(first.members[i]) in here for i in row if i != HOLE) == wanted for row in first.rows
            )
            return first.is_assigned and placed and all(table == first for table in tables)

        wait_for(is_whole, f"all replicas at {names}", SETTLE_S, self.seen)

    def wait_merged(self, names: str) -> None:
        """Until the cluster has acknowledged all that was kept anywhere; on these hosts something was."""
        wait_for(lambda: all(map(self._has_merged, self._hosts)), "all that was kept is merged", SETTLE_S, self.seen)
        for name in names.split():
            assert self.events(name, "DataKept"), f"{name} has kept nothing"

    def _has_merged(self, name: str) -> bool:
        """Whether the incarnation on that host has merged what the ones before it have left to it."""
        events = sorted(self.events(name), key=lambda event: (event["at"], event["event"] != "DataKept"))
        kept = [place for place, event in enumerate(events) if event["event"] == "DataKept"]
        since = events[kept[-1] :] if kept else []
        started, ended = (
            {event["former"] for event in since if event["event"] == kind} for kind in ("MergeStarted", "MergeEnded")
        )
        return not kept or (bool(started) and started <= ended)

    def seen(self) -> str:
        """Everybody's list, for whom something did not happen in time."""
        said = []
        for name in self._hosts:
            try:
                reply = self.said_by(name)
            except UnavailableError as error:
                said.append(f"{name}: {error}")
            else:
                suspected = f" suspects {self.named(reply.suspected)}" if reply.suspected else ""
                said.append(f"{name}: {self.named(reply.view.members)} ({reply.view.version}){suspected}")
        return "; ".join(said)

    def events(self, name: str, kind: str = "") -> list[dict[str, Any]]:
        """What the incarnations on that member's host have recorded, of one kind or of all."""
        found = []
        for path in sorted(self.event_log.glob("*.jsonl")):
            for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
                event = json.loads(line) if line.endswith("\n") else {}
                if _host_of(event.get("member", "")) == self._hosts[name] and kind in ("", event["event"]):
                    found.append(event)
        return found

    def suspected_now(self, name: str) -> list[str]:
        """Whom that member suspects."""
        return self.named(self.said_by(name).suspected).split()

    def rows_of(self, name: str) -> list[str]:
        """The names of those that hold each partition, the owner first, in that member's table."""
        table = self.table_of(name).table
        return [self.named(table.members[i] for i in row if i != HOLE) for row in table.rows]

    def removed_by(self, name: str) -> list[str]:
        """Whom that member has removed from the list as the master."""
        return [self.named([event["removed"]]) for event in self.events(name, "MemberRemoved")]

    def suspected_by(self, name: str) -> list[str]:
        """Whom that member has suspected, ever."""
        return [self.named([event["suspect"]]) for event in self.events(name, "MemberSuspected")]

    def judge(self) -> None:
        """M1 to M3, from the event logs."""
        running = self.said_by(next(iter(self._hosts))).view.members
        wait_for(lambda: not ViewsOnDisk(self.event_log).judge(running), "M1 to M3 hold in the logs", 10.0)

    def logs(self) -> str:
        """What all members wrote, for the report of a test that failed."""
        return "\n".join(f"--- {process!r}\n{process.log.read_text()}" for process in self._processes)

    # --- within ----------------------------------------------------------------------------------------------------

    def _start(self, host: str, config: Path, seeds: tuple[str, ...]) -> MemberProcess:
        options = (f"--host={host}", f"--config={config}", f"--secret-file={self.secret_file}")
        with self.network.inside(host):
            process = start_member_process(
                self.folder / f"{host}.log", seeds=seeds, cluster=CLUSTER, port=5701, event_log=self.event_log,
                options=options,
            )  # fmt: skip
        self._processes.append(process)
        return process

    def _ask(self, host: str, ask: Callable[[Inquirer], Any]) -> Any:
        with (
            self.network.inside(host),
            Inquirer(Address(f"{host}:5701"), cluster=CLUSTER, secret_file=self.secret_file) as inquirer,
        ):
            return ask(inquirer)

    def _whole(self, at: str) -> MembersReply | None:
        reply: MembersReply = self.said_by(at)
        return reply if len(reply.view.members) == len(self._hosts) else None

    def _is_list(self, group: str, wanted: str) -> bool:
        names = group.split()
        first = self.said_by(names[0]).view
        found = self.named(first.members)
        if wanted.startswith("?"):
            if sorted(found.split()) != sorted(wanted.split()[1:]):
                return False
        elif found != wanted:
            return False
        return all(self.said_by(name).view == first for name in names[1:])

    def _on(self, names: str) -> list[str]:
        return [self._hosts[name] for name in names.split()]

    def named(self, members: Any) -> str:
        """The names of these incarnations."""
        names = {host: name for name, host in self._hosts.items()}
        return " ".join(names[_host_of(member)] for member in members)


class LocalClient:
    """A blocking client whose calls are all made from one host."""

    def __init__(self, machines: Machines, host: str, options: dict[str, Any]) -> None:
        self._inside = partial(machines.network.inside, host)
        with self._inside():
            self._grid = phalanx.Client(
                machines.addresses(machines.everybody), cluster=CLUSTER, secret_file=machines.secret_file, **options
            )

    def close(self) -> None:
        self._grid.close()

    def call(self, name: str, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of a map."""
        with self._inside():
            return getattr(self._grid.map(name), method)(*arguments, **options)

    def items(self, name: str) -> dict[Any, Any]:
        """All entries of a map."""
        with self._inside():
            return dict(self._grid.map(name).items())


def _host_of(member: str) -> str:
    return member.partition("/")[0].rpartition(":")[0]
