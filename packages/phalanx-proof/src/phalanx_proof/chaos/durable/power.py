"""A disk that can lose power: all that a member writes is noted beside it, with what was there before, until it is synced.

    journal/notes        a line of JSON for each change and each sync, in order
    journal/kept-N       a file that the member has removed or replaced, until that is synced

The member writes to its real files, so a process that is killed loses nothing. After a process has ended, `cut_power` takes back what was
not synced: all of it, or of each sector of 512 bytes any of the states since the last sync, as disks do that write in an order of their
own. Names of files are a file system's journal: of these a prefix of what was done stays.
"""

from __future__ import annotations

import contextlib
import enum
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from phalanx.runtime.disk.files import RealFiles

SECTOR_BYTES = 512
NOTES = "notes"
DIE_IN = "die-in-"
"""How the name of a file in the folder of notes begins that lets the process die in the next call of that name."""


class NoteKind(enum.StrEnum):
    """What was done to a file or a folder."""

    WRITTEN = "written"
    SIZED = "sized"
    SYNCED = "synced"
    MADE = "made"
    REMOVED = "removed"
    RENAMED = "renamed"


_NAMES = (NoteKind.MADE, NoteKind.REMOVED, NoteKind.RENAMED)


class DiskNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change, as it is undone; or one sync, which covers all notes of the same file or folder up to a number."""

    kind: NoteKind
    inode: int
    """Of the file; of the folder where names change."""
    offset: int = 0
    size: int = 0
    """Of what was written; of the file before it got another size; the number of the last note that a sync covers."""
    before: bytes = b""
    """What was there; empty: zeros, or nothing."""
    name: str = ""
    new: str = ""
    kept: str = ""
    """The name, in the folder of notes, of a file that was removed or replaced."""


def read_notes(folder: Path) -> list[DiskNote]:
    """Return all notes; the last one can be torn, because its process was killed: then the change was not made."""
    with contextlib.suppress(FileNotFoundError):
        lines = (folder / NOTES).read_bytes().split(b"\n")
        return [msgspec.json.decode(line, type=DiskNote) for line in lines[:-1] if line]
    return []


def find_unsynced(notes: list[DiskNote]) -> list[DiskNote]:
    """Return the changes that no sync covers, in order."""
    covered: dict[tuple[int, bool], int] = {}
    for note in notes:
        if note.kind is NoteKind.SYNCED:
            covered[note.inode, bool(note.name)] = note.size

    def is_covered(number: int, note: DiskNote) -> bool:
        return number < covered.get((note.inode, note.kind in _NAMES), 0)

    return [
        note for number, note in enumerate(notes) if note.kind is not NoteKind.SYNCED and not is_covered(number, note)
    ]


class PowerFiles(RealFiles):
    """The real calls, with notes of what a power cut would take."""

    def __init__(self, folder: Path) -> None:
        """`folder`: of the notes; on the same file system as the data. An earlier process can have left notes there."""
        self._folder = folder
        self._lock = threading.Lock()
        unsynced = _forget_removed(folder, find_unsynced(read_notes(folder)))
        self._count = len(unsynced)
        beside = folder / f"{NOTES}.new"
        beside.write_bytes(b"".join(msgspec.json.encode(note) + b"\n" for note in unsynced))
        beside.replace(folder / NOTES)
        self._notes = os.open(folder / NOTES, os.O_WRONLY | os.O_APPEND)
        self._kept: dict[int, list[str]] = {}
        """Folder to the files that are kept for it."""

    def open(self, folder: int, name: str, flags: int) -> int:
        is_new = bool(flags & os.O_CREAT) and name not in os.listdir(folder)
        if is_new:
            self._note(DiskNote(NoteKind.MADE, _inode(folder), name=name))
        if flags & os.O_WRONLY:
            flags ^= os.O_WRONLY | os.O_RDWR  # what is overwritten is read first
        return super().open(folder, name, flags)

    def allocate(self, descriptor: int, size: int) -> None:
        self._meet("allocate")
        self._note(DiskNote(NoteKind.SIZED, _inode(descriptor), size=os.fstat(descriptor).st_size))
        super().allocate(descriptor, size)

    def truncate(self, descriptor: int, size: int) -> None:
        before = os.fstat(descriptor).st_size
        self._note_bytes(descriptor, size, before - size)
        self._note(DiskNote(NoteKind.SIZED, _inode(descriptor), size=before))
        super().truncate(descriptor, size)

    def write(self, descriptor: int, data: bytes | bytearray, offset: int) -> int:
        self._note_bytes(descriptor, offset, len(data))
        if self._is_to_die("write"):
            super().write(descriptor, data[: len(data) // 2], offset)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().write(descriptor, data, offset)

    def sync_data(self, descriptor: int) -> None:
        self._meet("sync_data")
        covered = self._count
        super().sync_data(descriptor)
        self._note(DiskNote(NoteKind.SYNCED, _inode(descriptor), size=covered))

    def sync(self, descriptor: int) -> None:
        self._meet("sync")
        covered = self._count
        super().sync(descriptor)
        inode = _inode(descriptor)
        self._note(DiskNote(NoteKind.SYNCED, inode, size=covered))
        self._note(DiskNote(NoteKind.SYNCED, inode, size=covered, name="."))
        for name in self._kept.pop(inode, []):
            self._forget(self._folder / name)

    def rename(self, folder: int, name: str, new: str) -> None:
        self._meet("rename")
        kept = self._keep(folder, new)
        self._note(DiskNote(NoteKind.RENAMED, _inode(folder), name=name, new=new, kept=kept))
        super().rename(folder, name, new)

    def unlink(self, folder: int, name: str) -> None:
        self._meet("unlink")
        self._note(DiskNote(NoteKind.REMOVED, _inode(folder), name=name, kept=self._keep(folder, name)))
        super().unlink(folder, name)

    def _keep(self, folder: int, name: str) -> str:
        """Keep a file that loses its name. Return the name that it is kept under; "": there is none."""
        kept = f"kept-{self._count}-{os.getpid()}"
        try:
            os.link(name, self._folder / kept, src_dir_fd=folder)
        except FileNotFoundError:
            return ""
        self._kept.setdefault(_inode(folder), []).append(kept)
        return kept

    def _forget(self, path: Path) -> None:
        """Remove a file for good. Its number can be given to another file."""
        self._note(DiskNote(NoteKind.SYNCED, path.stat().st_ino, size=self._count))
        path.unlink()

    def _note_bytes(self, descriptor: int, offset: int, size: int) -> None:
        if size > 0:
            before = os.pread(descriptor, size, offset)
            content = before if before.strip(b"\0") else b""
            self._note(DiskNote(NoteKind.WRITTEN, _inode(descriptor), offset, size, content))

    def _note(self, note: DiskNote) -> None:
        with self._lock:
            os.write(self._notes, msgspec.json.encode(note) + b"\n")
            self._count += 1

    def _meet(self, call: str) -> None:
        if self._is_to_die(call):
            os.kill(os.getpid(), signal.SIGKILL)

    def _is_to_die(self, call: str) -> bool:
        return (self._folder / f"{DIE_IN}{call}").exists()


def _forget_removed(folder: Path, unsynced: list[DiskNote]) -> list[DiskNote]:
    """Remove files for good whose removal is synced. Return the notes without theirs."""
    awaited, gone = {note.kept for note in unsynced}, set()
    for path in folder.glob("kept-*"):
        if path.name not in awaited:
            gone.add(path.stat().st_ino)
            path.unlink()
    return [note for note in unsynced if note.inode not in gone]


def _inode(descriptor: int) -> int:
    return os.fstat(descriptor).st_ino


class PowerCut(msgspec.Struct, frozen=True):
    """What one power cut took from one folder."""

    writes: int = 0
    """That were not synced."""
    bytes: int = 0
    """Of these."""
    names: int = 0
    """Changes of names that were taken back."""


def cut_power(data: Path, notes: Path, rng: random.Random) -> PowerCut:
    """Take from a data folder what is not synced, as a power cut does. No process uses it."""
    unsynced = find_unsynced(read_notes(notes))
    names = [note for note in unsynced if note.kind in _NAMES]
    lost_names = names[rng.randint(0, len(names)) :]
    paths = {path.stat().st_ino: path for path in (*data.rglob("*"), *notes.glob("kept-*"))}
    writes = [note for note in unsynced if note.kind is NoteKind.WRITTEN and note.inode in paths]
    lost: dict[tuple[int, int], int] = {}
    touched = Counter((note.inode, sector) for note in writes for sector in _sectors(note))
    takes_all = rng.random() < 0.4
    for place, times in sorted(touched.items()):
        lost[place] = times if takes_all else rng.randint(0, times)
    undone = 0
    for note in reversed(unsynced):
        if note.kind is NoteKind.WRITTEN and note.inode in paths:
            undone += _undo_write(note, paths[note.inode], lost)
        elif note.kind is NoteKind.SIZED and note.inode in paths and takes_all:
            os.truncate(paths[note.inode], note.size)
    folders = {path.stat().st_ino: path for path in (data, *data.rglob("*")) if path.is_dir()}
    for note in reversed(lost_names):
        _undo_name(note, folders[note.inode], notes)
    for path in notes.iterdir():
        path.unlink()
    return PowerCut(len(writes), undone, len(lost_names))


def _sectors(note: DiskNote) -> range:
    return range(note.offset // SECTOR_BYTES, (note.offset + note.size - 1) // SECTOR_BYTES + 1)


def _undo_write(note: DiskNote, path: Path, lost: dict[tuple[int, int], int]) -> int:
    """Put back what was there before, in the sectors that are to lose this write. Return how many bytes that were."""
    before = note.before.ljust(note.size, b"\0")
    undone = 0
    with path.open("r+b") as file:
        for begin, end in _lost_parts(note, lost):
            file.seek(begin)
            file.write(before[begin - note.offset : end - note.offset])
            undone += end - begin
    return undone


def _lost_parts(note: DiskNote, lost: dict[tuple[int, int], int]) -> Iterator[tuple[int, int]]:
    for sector in _sectors(note):
        if lost[note.inode, sector]:
            lost[note.inode, sector] -= 1
            begin = sector * SECTOR_BYTES
            yield max(begin, note.offset), min(begin + SECTOR_BYTES, note.offset + note.size)


def _undo_name(note: DiskNote, folder: Path, notes: Path) -> None:
    if note.kind is NoteKind.MADE:
        (folder / note.name).unlink(missing_ok=True)
        return
    if note.kind is NoteKind.RENAMED:
        (folder / note.new).rename(folder / note.name)
    if note.kept:
        (notes / note.kept).rename(folder / (note.new or note.name))
