"""Names of hidden maps: what is staged for a map, or was kept of it at one moment, by a job; and its locks.

A hidden map is an ordinary one in its partition: replicated, moved and held to the settings of the map that it is for.
No user can name it, and it counts as none of the maps. Its name says for which map it is, of which job, and which part:

    attempt   rows of one attempt of one task, not yet in the map
    whole     what is to be in the place of the map's present content
    snapshot  the map as it was at one moment
    lock      the locks of keys, and the fencing tokens that keys were written with; of no job
    semaphore the semaphores of keys; of no job
"""

from __future__ import annotations

import enum
import re

from phalanx.common.errors import UsageError

HIDDEN = "\x01"
"""The beginning of the name of every hidden map, and of no other one."""
MAX_PART_LENGTH = 100
"""The most characters in the name of a job or of an attempt."""
MAX_HIDDEN_LENGTH = 2 * MAX_PART_LENGTH + 10
"""The most characters that a hidden map's name adds to that of its map."""
_PART = re.compile(rf"[\w.:#@+=-]{{1,{MAX_PART_LENGTH}}}", re.ASCII)


class HiddenName(str):
    """The name of a hidden map as a program is given it. What it makes up itself is none."""

    __slots__ = ()


class StagedStep(enum.IntEnum):
    """What is done in a partition with what a job has staged."""

    APPLY = 1
    """Put the rows of some attempts into the map."""
    ASSEMBLE = 2
    """Assemble the rows into the content that is to replace the map."""
    SNAPSHOT = 3
    """Keep the map as it is now."""
    DROP = 4
    """Drop what is staged or kept."""
    REPLACE = 5
    """Replace the map by what was assembled: the owner does so without being asked when the master has decided it."""
    DISCARD = 6
    """Drop what was assembled: the owner does so without being asked when no job can need it any more."""
    CHECK = 7
    """Change nothing; tell whether `APPLY` could be done."""


class HiddenKind(enum.StrEnum):
    ATTEMPT = "a"
    WHOLE = "w"
    SNAPSHOT = "s"
    LOCK = "l"
    SEMAPHORE = "p"


def hidden_name(map_name: str, job: str, kind: HiddenKind, attempt: str = "") -> str:
    return f"{HIDDEN}{kind}/{job}/{attempt}/{map_name}"


def is_hidden(name: str) -> bool:
    return name.startswith(HIDDEN)


def lock_map(map_name: str, *, is_semaphore: bool = False) -> str:
    """Return the name of the hidden map with the locks, or semaphores, of a map's keys: each in its key's partition."""
    return f"{HIDDEN}{HiddenKind.SEMAPHORE if is_semaphore else HiddenKind.LOCK}///{map_name}"


def has_locks(name: str) -> bool:
    """Return whether this is the name of a hidden map of locks or semaphores."""
    return name.startswith((f"{HIDDEN}{HiddenKind.LOCK}/", f"{HIDDEN}{HiddenKind.SEMAPHORE}/"))


def is_staged(name: str) -> bool:
    """Return whether this is the name of a hidden map of a job."""
    return name.startswith(HIDDEN) and not has_locks(name)


def target_of(name: str) -> str:
    """Return the name of the map that a hidden map belongs to; of any other map, its own name."""
    return name.split("/", 3)[-1] if name.startswith(HIDDEN) else name


def job_of(name: str) -> str:
    """Return the job that a hidden map belongs to; empty for all other maps."""
    parts = name.split("/", 3)
    return parts[1] if len(parts) == 4 and name.startswith(HIDDEN) else ""


def kind_of(name: str) -> HiddenKind | None:
    """Return the kind of a hidden map; None: the map is not hidden."""
    if not name.startswith(HIDDEN):
        return None
    return next((kind for kind in HiddenKind if name[1:].startswith(f"{kind}/")), None)


def check_part(what: str, text: object) -> str:
    """Return the text if it can name a job or an attempt. Raises `UsageError` otherwise."""
    if not isinstance(text, str) or not _PART.fullmatch(text):
        raise UsageError(f"{text!r} cannot be a {what}: give 1 to {MAX_PART_LENGTH} letters, digits or any of .:#@+=-_")
    return text
