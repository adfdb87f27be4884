"""Which file system a path is on, and whether what is written there outlives this machine's run.

A log on tmpfs ends with the machine, one on a container's overlay with the container. A file system of the network has caches and locks
of its own, with rules that a client cannot know. So only the file systems whose rules are known are used unasked.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

LASTING: Final = frozenset({"ext4", "xfs"})
USABLE: Final = frozenset({"bcachefs", "btrfs", "ext3", "f2fs", "zfs"})
"""Those that last, but for which something must be said."""
_COPY_ON_WRITE: Final = frozenset({"bcachefs", "btrfs", "zfs"})
_OF_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_OF_CONTAINERS: Final = frozenset({"overlay", "aufs", "fuse.fuse-overlayfs"})
_OF_NETWORKS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "glusterfs", "fuse.glusterfs", "lustre", "fuse.sshfs"}
)


class MountedFileSystem(NamedTuple):
    """One line of `/proc/self/mountinfo`."""

    mount_id: int
    point: str
    """Where it is mounted."""
    kind: str
    """The name of the file system, such as "ext4"."""


def read_mount(path: str, descriptor: int) -> MountedFileSystem | None:
    """Return the mount on which an open folder is; None: the system does not say. `path`: the folder's, without symbolic links."""
    try:
        mounts = Path("/proc/self/mountinfo").read_bytes()
        details = Path(f"/proc/self/fdinfo/{descriptor}").read_bytes()
    except OSError:
        return None
    return find_mount(mounts, details, path)


def find_mount(mountinfo: bytes, fdinfo: bytes, path: str) -> MountedFileSystem | None:
    """Return the mount that the details of a descriptor name; if they name none, the one whose place is the longest part of the path."""
    mounts = [mount for line in mountinfo.splitlines() if (mount := _read_line(line)) is not None]
    named = _mount_id(fdinfo)
    if named is not None:
        return next((mount for mount in mounts if mount.mount_id == named), None)
    around = [mount for mount in mounts if os.path.commonpath([mount.point, path]) == mount.point]
    # A later mount at the same place hides the earlier one.
    return max(enumerate(around), key=lambda each: (len(each[1].point), each[0]), default=(0, None))[1]


def _read_line(line: bytes) -> MountedFileSystem | None:
    """Read one line: numbers, root, place, options, any number of other fields, " - ", the kind, and more."""
    before, separator, after = line.partition(b" - ")
    fields, kinds = before.split(b" "), after.split(b" ")
    if not separator or len(fields) < 6 or not fields[0].isdigit() or not fields[4].startswith(b"/"):
        return None
    return MountedFileSystem(int(fields[0]), os.fsdecode(_unescape(fields[4])), os.fsdecode(kinds[0]))


def _unescape(field: bytes) -> bytes:
    """Return a field with its blanks, tabs, line ends and backslashes, which the system writes as octal numbers."""
    for escaped, plain in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
        field = field.replace(escaped, plain)
    return field


def _mount_id(fdinfo: bytes) -> int | None:
    for line in fdinfo.splitlines():
        name, _, value = line.partition(b":")
        if name == b"mnt_id" and value.strip().isdigit():
            return int(value)
    return None


def why_not_lasting(kind: str | None) -> str:
    """Return why a file system of this kind is refused; "": it is not. None: its kind is not known."""
    if kind is None:
        return "on a file system whose kind /proc/self/mountinfo does not say"
    if kind in LASTING or kind in USABLE:
        return ""
    if kind in _OF_MEMORY:
        return f"on {kind}, which is memory and ends with the machine"
    if kind in _OF_CONTAINERS:
        return f"on {kind}, the file system of a container's image, which ends with the container"
    if kind in _OF_NETWORKS:
        return f"on {kind}, a file system of another machine, whose locks and syncs do not hold what a local disk's do"
    return f"on {kind}, of which it is not known whether it keeps what it has synced"


def warning_about(kind: str) -> str:
    """Return what to say of a file system that is used although it is not one of `LASTING`; "": nothing."""
    if kind in LASTING:
        return ""
    if kind in _COPY_ON_WRITE:
        return f"on {kind}, where room that was reserved can still be missing when it is written to: leave a tenth of the disk free"
    if kind in USABLE:
        return f"on {kind}, on which Phalanx is not tested: ext4 and xfs are"
    return f"{why_not_lasting(kind)}: it is used because data_dir_is_lasting says so"
