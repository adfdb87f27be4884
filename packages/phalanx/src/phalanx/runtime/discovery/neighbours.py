"""Find other members of one user on one host, to warn if a member forms a cluster beside another one of the same name.

Each member writes its address into a file of a folder that only this user can write. A file can be left over, or be
wrong: its address counts only if a member of a cluster of the same name, with the same secret, answers there. All this
happens in threads, off the member's event loop. The only consequence of an error is a missing warning.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from phalanx.client.blocking.connection import BlockingConnection, ConnectAttempt, RefusedByPeer
from phalanx.common.errors import ProtocolError, UnavailableError, UsageError
from phalanx.common.ids import Address, MemberId, address_of, parse_address
from phalanx.net.begun_threads import begin_thread
from phalanx.net.secret import Secret
from phalanx.wire.codec import DEFAULT_MAX_FRAME_BYTES
from phalanx.wire.messages import GetTable, TableReply

logger = logging.getLogger("phalanx.member")

ANSWER_S = 2.0
"""How long a member can take to answer."""
MOST = 64
"""How many files are read at most."""


def notes_folder() -> Path:
    """Return the folder with the address files of this user's members."""
    return Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"phalanx-{os.getuid()}"


class Neighbours:
    """The address file of one member, and the search for other members by their files."""

    def __init__(self, cluster: str, address: Address, secret: Secret | None) -> None:
        self._cluster, self._address, self._secret = cluster, address, secret
        self._note = notes_folder() / f"{os.getpid()}-{address.rpartition(':')[2]}"

    def announce(self) -> None:
        """Write this member's address file. Returns at once."""
        _in_background(self._write)

    def withdraw(self) -> None:
        """Remove this member's address file: the member stops."""
        with contextlib.suppress(OSError):
            self._note.unlink()

    def warn_of_others(self, this: MemberId) -> None:
        """Log a warning if this host has another cluster of the same name. Returns at once."""
        _in_background(lambda: self.tell_of_others(this))

    def tell_of_others(self, this: MemberId) -> None:
        """Warn as `warn_of_others`, but return after all members were asked."""
        for address in self.noted():
            other = self._ask(address)
            if other is None or this in other.view or self._address in other.sought:
                continue
            logger.warning(
                "%s has formed a cluster of its own, named %r, beside the one of %s (%d members, master %s), which has the same "
                "name: they do not know each other, and share no data. If this was not intended, start this member with --seed "
                "%s; if it was, give one of them another --cluster name",
                self._address, self._cluster, address, len(other.view.members), address_of(other.view.master), address,
            )  # fmt: skip
            return

    def _write(self) -> None:
        folder = self._note.parent
        folder.mkdir(mode=0o700, exist_ok=True)
        if not is_own(folder):
            return
        self._note.write_text(f"{self._cluster}\n{self._address}\n", encoding="utf-8")

    def noted(self) -> Iterator[Address]:
        """Yield the other addresses in files with this cluster's name. Remove files of ended processes."""
        folder = self._note.parent
        if not is_own(folder):
            return
        for note in sorted(folder.iterdir())[:MOST]:
            with contextlib.suppress(OSError, ValueError, UsageError):
                if not _runs(int(note.name.partition("-")[0])):
                    note.unlink()
                    continue
                cluster, _, address = note.read_text(encoding="utf-8").rstrip("\n").rpartition("\n")
                if cluster == self._cluster and address != self._address:
                    yield parse_address(address)

    def _ask(self, address: Address) -> TableReply | None:
        """Return the table reply of a member of a cluster with this name; None: none, or not joined yet."""
        try:
            return ask_table(address, self._cluster, self._secret)
        except (OSError, RefusedByPeer, ProtocolError):
            return None


def ask_table(address: Address, cluster: str, secret: Secret | None) -> TableReply | None:
    """Ask the member at the address for its table, and return the reply; None: it has not joined a cluster yet.

    Raises `TimeoutError` if the process that listens there does not answer within `ANSWER_S`, another `OSError` if nobody listens, and
    `RefusedByPeer` or `ProtocolError` if it is not a member of a cluster of that name and secret.
    """
    attempt = ConnectAttempt(address, cluster, f"client/{uuid.uuid4()}", secret)
    try:
        attempt.go_on_for(ANSWER_S)
        if attempt.member is None:
            raise TimeoutError(f"{address} did not answer within {ANSWER_S:g} s")
        connection = BlockingConnection(attempt, DEFAULT_MAX_FRAME_BYTES)
        connection.send(GetTable(1, False))
        deadline = time.monotonic() + ANSWER_S
        while (left_s := deadline - time.monotonic()) > 0:
            for reply in connection.receive(left_s):
                return reply if isinstance(reply, TableReply) else None
        raise TimeoutError(f"{address} did not answer within {ANSWER_S:g} s")
    finally:
        attempt.socket.close()


def is_own(folder: Path) -> bool:
    """Return whether only this user can write into the folder."""
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _in_background(work: Callable[[], None]) -> None:
    def run() -> None:
        # A full or read-only disk, or a meaningless file, must cause no more than a missing warning.
        with contextlib.suppress(OSError, ValueError):
            work()

    with contextlib.suppress(UnavailableError):
        begin_thread(run, "phalanx-neighbours")
