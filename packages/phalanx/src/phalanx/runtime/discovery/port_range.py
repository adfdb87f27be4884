"""How members with a range of ports find each other: without seeds, one at a time looks for the others before it joins.

Workers of one server start at the same moment, know nothing of each other, and must become one cluster. So each of them

1. waits for a lock, which one process of this user and host holds at a time for a cluster's name,
2. asks at all ports of the range for members of that cluster, and
3. if there are any, releases the lock, and joins through them; if there are none, it forms the cluster, and releases the lock
   when it serves.

A member that is in the cluster but hangs does not answer. Its address file (`neighbours`) and its open port tell that
it is there: then this member joins through it, or fails; it never forms a cluster beside it. The kernel releases the lock of a
process that ends. One that hangs holds it: the others give up after the time that joining can take.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import os
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from phalanx.client.blocking.connection import RefusedByPeer
from phalanx.common.errors import JoinFailed, ProtocolError, UsageError
from phalanx.common.ids import Address
from phalanx.net.connection import listening_advice, reason_of
from phalanx.net.dialing import Place, look_up
from phalanx.net.forking import tell_forks
from phalanx.net.secret import Secret
from phalanx.runtime.discovery.neighbours import Neighbours, ask_table, is_own, notes_folder
from phalanx.runtime.settings.config import Config

BACKLOG = 1024
"""Connections that the system takes before this process does."""
FREE_PORT_ATTEMPTS = 10
LOOK_AGAIN_S = 0.02
"""Between two looks whether the lock is free."""


class FormingLock:
    """A lock that one process of this user on this host holds at a time: who holds it can form the cluster."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        tell_forks(self)

    async def acquire(self, within_s: float) -> None:
        """Wait until no other process holds it. Raises `JoinFailed` if that takes longer, and `OSError`."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        ends_at = time.monotonic() + within_s
        try:
            while True:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                if time.monotonic() > ends_at:
                    raise JoinFailed(
                        f"another process has been forming the cluster for more than {within_s:g} s: find the process that holds "
                        f"{self._path}, and end it"
                    )
                await asyncio.sleep(LOOK_AGAIN_S)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def release(self) -> None:
        """Release it. Does nothing if it is not held."""
        if self._descriptor is not None:
            # Not only closed: a child that was forked meanwhile can have the file open, too.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None

    def on_forked(self) -> None:
        """Close the copy in a forked process, or the lock would be held as long as that lives."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


async def find_members(config: Config) -> tuple[tuple[Address, ...], FormingLock]:
    """Return the members of the cluster at the ports of the range, and the lock.

    If there are none, the lock is held: release it when the cluster is formed. Raises `JoinFailed`, and `UsageError` if there
    can be no lock.
    """
    path = _lock_file(config.cluster)
    lock = FormingLock(path)
    try:
        await lock.acquire(config.join_attempts * config.join_timeout_ms / 1000)
    except OSError as error:
        raise UsageError(f"port: members of a range find each other through {path}, but: {error.strerror}") from error
    try:
        seeds = await _look(config)
    except BaseException:
        lock.release()
        raise
    if seeds:
        lock.release()
    return seeds, lock


async def _look(config: Config) -> tuple[Address, ...]:
    """Return the addresses of members that have joined; else of those that seem to be there, and do not answer."""
    secret = config.find_secret()
    noted = frozenset(Neighbours(config.cluster, config.address(0), secret).noted())
    addresses = [config.address(port) for port in config.ports]
    found = await asyncio.gather(*(asyncio.to_thread(_ask, each, config.cluster, secret) for each in addresses))
    joined = tuple(address for address, answer in zip(addresses, found, strict=True) if answer is True)
    silent = tuple(address for address, answer in zip(addresses, found, strict=True) if answer is None)
    return joined or tuple(address for address in silent if address in noted)


def _ask(address: Address, cluster: str, secret: Secret | None) -> bool | None:
    """Return whether a member of the cluster is there; None: somebody who does not answer."""
    try:
        return ask_table(address, cluster, secret) is not None
    except TimeoutError:
        return None
    except (OSError, RefusedByPeer, ProtocolError):
        return False


def _lock_file(cluster: str) -> Path:
    folder = notes_folder()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if is_own(folder):
            return folder / f"forming-{hashlib.sha256(cluster.encode()).hexdigest()[:16]}"
        why = "others may write there"
    except OSError as error:
        why = error.strerror or str(error)
    raise UsageError(
        f"port: members of a range find each other through files in {folder}, but {why}: set XDG_RUNTIME_DIR to a folder of "
        f"this user, or give seeds"
    )


async def listen(
    loop: asyncio.AbstractEventLoop, config: Config, accept: Callable[[], asyncio.Protocol]
) -> list[asyncio.Server]:
    """Listen at the first free port, at all addresses of the host. `accept`: makes the protocol of a connection.

    Raises `UsageError` if no port is free.
    """
    # For a name the system chooses what is free at one of its addresses: at another one it can be taken.
    ports = config.ports if config.port else [0] * FREE_PORT_ATTEMPTS
    try:
        bound = _bind_first_free(await look_up(loop, config.host, 0), ports)
    except (OSError, UnicodeError) as error:
        what = (
            f"at {config.host}, at none of the ports {config.port}"
            if len(config.ports) > 1
            else f"on {config.host}:{config.port}"
        )
        reason = reason_of(error) if isinstance(error, OSError) else error
        raise UsageError(f"cannot listen {what}: {reason}; {listening_advice(error)}") from error
    return [await loop.create_server(accept, sock=each, backlog=BACKLOG) for each in bound]


def _bind_first_free(places: list[Place], ports: Iterable[int]) -> list[socket.socket]:
    problem = OSError(errno.EADDRINUSE, "")
    for port in ports:
        try:
            return _bind(places, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            problem = error
    raise problem


def _bind(places: list[Place], port: int) -> list[socket.socket]:
    """Return sockets at the port, one for each place that this machine has. Raises `OSError` if it has none, or one is taken."""
    problem, bound = OSError(errno.EADDRNOTAVAIL, ""), list[socket.socket]()
    for family, _, _, _, place in places:
        try:
            at = (place[0], bound[0].getsockname()[1] if bound else port, *place[2:])
            bound.append(socket.create_server(at, family=family, backlog=BACKLOG))
            bound[-1].setblocking(False)
        except OSError as error:
            problem = error
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                break
    else:
        if bound:
            return bound
    for each in bound:
        each.close()
    raise problem
