"""The folder of an archive: what is needed of one on any file system, and one of this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from phalanx.common.errors import UsageError
from phalanx.common.words import quoted
from phalanx.reports.file_modes import open_private

_ELSEWHERE = ("HADOOP_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME")
"""Variables with which an address without a scheme can mean other files than this machine's."""
_PART = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)*", re.ASCII)
"""Names of folders, one within the other, that mean nothing else to any file system: no way up, no scheme, no pattern, no column."""


def check_part(part: str, where: str) -> str:
    """Return the name of a folder within an archive, which anybody can have written.

    Raises `UsageError` that says `where` it was found, if it could lead out of the archive.
    """
    if len(part) > 200 or _PART.fullmatch(part) is None:
        raise UsageError(
            f"{where}: {quoted(part)} is not a folder of an archive: expected a name such as maps/0000. Somebody has changed it"
        )
    return part


class Readable(Protocol):
    """A folder, with what can be read of it before anything is written."""

    @property
    def address(self) -> str:
        """As it was given."""

    def of(self, name: str) -> str:
        """Return the address of the file or folder of this name in it."""

    def is_empty(self) -> bool:
        """Return whether nothing is in it, or there is no such folder. Raises `UsageError` if it is a file."""

    def read_text(self, name: str) -> str | None:
        """Return the text of a file; None if there is none."""


class Folder(Readable, Protocol):
    """A folder, which need not exist yet, and into which can be written."""

    def make(self) -> None:
        """Make the folder. Raises `UsageError` if that is not allowed."""

    def write_text(self, name: str, text: str) -> None:
        """Write a file that appears as a whole or not at all. Raises `UsageError` if it cannot be written."""


class LocalFolder:
    """A folder of this machine, without Spark."""

    def __init__(self, address: str, path: Path) -> None:
        self.address = address
        self.path = path

    def exists(self) -> bool:
        """Return whether a file or folder with this address exists."""
        return self.path.exists()

    def of(self, name: str) -> str:
        return str(self.path / name)

    def is_empty(self) -> bool:
        with self._explained():
            if self.path.exists() and not self.path.is_dir():
                raise UsageError(f"{self.address} is a file: give a folder")
            return not self.path.exists() or not any(self.path.iterdir())

    def read_text(self, name: str) -> str | None:
        path = self.path / name
        with self._explained():
            return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None

    def make(self) -> None:
        with self._explained():
            self.path.mkdir(parents=True, exist_ok=True)

    def write_text(self, name: str, text: str) -> None:
        """Write a file that appears as a whole or not at all, also if the machine crashes."""
        unfinished = self.path / f"_{name}.unfinished"
        with self._explained():
            with open(unfinished, "wb", opener=open_private) as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(self.path / name)
            self.sync()

    def files_of(self, part: str) -> list[Path]:
        """Return the files with entries in a subfolder, in order. Raises `UsageError` if a link leads out of the
        archive.
        """
        with self._explained():
            paths, inside = sorted((self.path / part).glob("[!_.]*.parquet")), self.path.resolve()
            for path in (self.path / part, *paths):
                if not path.resolve().is_relative_to(inside):
                    raise UsageError(f"{path} is a link out of the archive: copy what it leads to into {self.address}")
            return paths

    def sync(self) -> None:
        """Write the names of its files to the disk, so that they survive a crash of the machine."""
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def size_of(self, parts: Iterable[str]) -> int:
        """Return the size of the files in these subfolders, in bytes."""
        with self._explained():
            return sum(file.stat().st_size for part in parts for file in (self.path / part).glob("*"))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UsageError(f"cannot use {self.address}: {error.strerror}") from None
        except ValueError as error:  # a NUL byte in it
            raise UsageError(f"cannot use {self.address}: {error}") from None


def find_local(address: str, master: str, *, is_local: bool = False) -> LocalFolder | None:
    """Return the folder, if it is certainly one of this machine to a Spark with this master; else None.

    `is_local`: the caller says that an address without a scheme is a folder of this machine.
    """
    if address.startswith("file:/"):
        return LocalFolder(address, Path("/" + address.removeprefix("file:").lstrip("/")))
    is_elsewhere = not master.startswith("local") or any(map(os.environ.get, _ELSEWHERE))
    if "://" in address or (is_elsewhere and not is_local):
        return None
    return LocalFolder(address, Path(address))
