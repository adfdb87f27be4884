"""Machines that are network namespaces of this one, on one bridge, and links between them that are cut and healed.

Each host has a namespace of its own with one address. All hang on a bridge in a further namespace, where nftables drops
what the cuts say: packets from one address to another, in one direction each. Nothing outside these namespaces is
touched, and nobody outside can reach in. Packets are dropped, not refused: a cut link is silent, as a broken one is.

Names carry the process id of the tests, so that what a killed run left behind is found, and removed by the next one.
"""

import contextlib
import ctypes
import functools
import itertools
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

_CLONE_NEWNET = 0x40000000
_NAMES = Path("/run/netns")
_OURS = re.compile(r"phalanx-cuts-(\d+)-\d+-\w+")
_numbers = itertools.count(1)
_PORT = 5701

_BRIDGE = """
add table bridge cuts
add set bridge cuts severed { type ipv4_addr . ipv4_addr; }
add chain bridge cuts links { type filter hook forward priority 0; }
add rule bridge cuts links ether type ip ip saddr . ip daddr @severed drop
"""


class NoNetwork(Exception):
    """Networks cannot be made here; says why, and what would help."""


class Network:
    """Hosts, each of which reaches all others until links are cut. Use it as a context manager."""

    def __init__(self, hosts: int) -> None:
        prefix = f"phalanx-cuts-{os.getpid()}-{next(_numbers)}-"
        self._hub = prefix + "hub"
        self._names = {f"10.77.0.{number}": f"{prefix}{number}" for number in range(1, hosts + 1)}
        """Address to the name of its namespace."""

    @property
    def hosts(self) -> list[str]:
        """The addresses of all hosts."""
        return list(self._names)

    def name_of(self, host: str) -> str:
        """The name of a host's namespace, for `ip netns exec`."""
        return self._names[host]

    def __enter__(self) -> Self:
        remove_leftovers()
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the namespaces. Who still runs in one keeps it alive without a name, and ends by itself."""
        for name in (*self._names.values(), self._hub):
            if (_NAMES / name).exists():
                _run("ip", "netns", "delete", name)

    def cut(self, one: Iterable[str] | str, other: Iterable[str] | str) -> None:
        """Nothing gets from the hosts of one side to those of the other any more, nor back."""
        pairs = _pairs(one, other)
        self._change("add", [*pairs, *((to, by) for by, to in pairs)])

    def cut_one_way(self, by: Iterable[str] | str, to: Iterable[str] | str) -> None:
        """Nothing gets from the former to the latter any more; the way back is open."""
        self._change("add", _pairs(by, to))

    def heal(self) -> None:
        """All links are whole again."""
        _run("ip", "netns", "exec", self._hub, "nft", "flush", "set", "bridge", "cuts", "severed")

    @contextlib.contextmanager
    def inside(self, host: str) -> Iterator[None]:
        """This thread is on that host: sockets that it opens, and processes that it starts."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            there = os.open(_NAMES / self._names[host], os.O_RDONLY)
            try:
                _enter(there)
            finally:
                os.close(there)
            try:
                yield
            finally:
                _enter(home)
        finally:
            os.close(home)

    def reaches(self, by: str, to: str, within_s: float = 0.3) -> bool:
        """Whether a connection from one host to another opens."""
        with self.inside(to):
            server = socket.create_server((to, _PORT - 1))
        with server, self.inside(by):
            try:
                socket.create_connection((to, _PORT - 1), within_s).close()
            except OSError:
                return False
        return True

    def _make(self) -> None:
        hub = self._hub
        for name in (hub, *self._names.values()):
            _run("ip", "netns", "add", name)
        _run("ip", "-n", hub, "link", "add", "bridge", "type", "bridge", "forward_delay", "0")
        _run("ip", "-n", hub, "link", "set", "bridge", "up")
        for number, (host, name) in enumerate(self._names.items()):
            link = f"host{number}"
            _run("ip", "-n", hub, "link", "add", link, "type", "veth", "peer", "name", "net", "netns", name)
            _run("ip", "-n", hub, "link", "set", link, "master", "bridge", "up")
            _run("ip", "-n", name, "address", "add", f"{host}/24", "dev", "net")
            _run("ip", "-n", name, "link", "set", "net", "up")
            _run("ip", "-n", name, "link", "set", "lo", "up")
        self._filter(_BRIDGE)

    def _change(self, verb: str, pairs: list[tuple[str, str]]) -> None:
        severed = ", ".join(f"{by} . {to}" for by, to in pairs)
        self._filter(f"{verb} element bridge cuts severed {{ {severed} }}")

    def _filter(self, commands: str) -> None:
        _run("ip", "netns", "exec", self._hub, "nft", "-f", "-", text=commands)


class NetworkWithClient(Network):
    """Hosts of members, and one more for clients, which reaches all of them until its links are cut."""

    @property
    def hosts(self) -> list[str]:
        return super().hosts[:-1]

    @property
    def of_clients(self) -> str:
        """The address of the host for clients."""
        return super().hosts[-1]


def _pairs(one: Iterable[str] | str, other: Iterable[str] | str) -> list[tuple[str, str]]:
    ones, others = ([side] if isinstance(side, str) else list(side) for side in (one, other))
    return [(by, to) for by in ones for to in others]


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "cannot enter a network namespace")


def _run(*command: str, text: str = "") -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode != 0:
        raise NoNetwork(f"{' '.join(command)}: {done.stderr.strip() or f'status {done.returncode}'}")
    return done.stdout


def remove_leftovers() -> None:
    """The namespaces of runs that have ended without removing theirs."""
    for path in _NAMES.glob("phalanx-cuts-*") if _NAMES.is_dir() else ():
        name = _OURS.fullmatch(path.name)
        if name is not None and not Path(f"/proc/{name[1]}").exists():
            _run("ip", "netns", "delete", path.name)


@functools.cache
def why_there_is_none() -> str:
    """Why networks cannot be made and cut here, and what would help; empty: they can. It is tried, once."""
    if os.geteuid() != 0:
        return "it takes root: only root may make network namespaces"
    missing = [tool for tool in ("ip", "nft") if shutil.which(tool) is None]
    if missing:
        return f"no {' and no '.join(missing)} here: apt-get install iproute2 nftables"
    try:
        with Network(2) as network:
            one, other = network.hosts
            network.cut_one_way(one, other)
            cut = [network.reaches(*pair) for pair in itertools.permutations(network.hosts, 2)]
            network.heal()
            healed = [network.reaches(*pair, within_s=5.0) for pair in itertools.permutations(network.hosts, 2)]
    except (NoNetwork, OSError) as error:
        return f"this machine does not permit it: {error}"
    return "" if not any(cut) and all(healed) else f"links cut: open {cut}, healed: open {healed}"
