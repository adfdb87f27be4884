"""Names of hidden maps: what is staged for a map, or was kept of it at one moment, by a job.

A hidden map is an ordinary one in its partition: replicated, moved and held to the settings of the map that it is for.
No user can name it, and it counts as none of the maps. Its name says for which map it is, of which job, and which part:

    attempt   rows of one attempt of one task, not yet in the map
    whole     what is to be in the place of the map's present content
    snapshot  the map as it was at one moment
"""

from __future__ import annotations

import enum
import re

from phalanx.common.errors import UsageError

HIDDEN = "\x01"
"""What the name of every hidden map begins with, and of no other one."""
MAX_PART_LENGTH = 100
"""Characters in the name of a job, or of an attempt."""
MAX_HIDDEN_LENGTH = 2 * MAX_PART_LENGTH + 10
"""What a hidden map's name may have more than that of its map."""
_PART = re.compile(rf"[\w.:#@+=-]{{1,{MAX_PART_LENGTH}}}", re.ASCII)


class HiddenName(str):
    """The name of a hidden map as a program is given it. What it makes up itself is none."""

    __slots__ = ()


class StagedStep(enum.IntEnum):
    """What is done in a partition with what a job has staged."""

    APPLY = 1
    """The rows of some attempts become the map's."""
    ASSEMBLE = 2
    """They become what is to take the place of the map."""
    SNAPSHOT = 3
    """The map is kept as it is."""
    DROP = 4
    """What is staged or kept is dropped."""
    REPLACE = 5
    """What was assembled takes the place of the map: by the owner itself, when the master has decided so."""
    DISCARD = 6
    """What was assembled is dropped: by the owner itself, when it can not be wanted any more."""
    CHECK = 7
    """Nothing is done: could `APPLY` be?"""


class HiddenKind(enum.StrEnum):
    ATTEMPT = "a"
    WHOLE = "w"
    SNAPSHOT = "s"


def hidden_name(map_name: str, job: str, kind: HiddenKind, attempt: str = "") -> str:
    return f"{HIDDEN}{kind}/{job}/{attempt}/{map_name}"


def is_hidden(name: str) -> bool:
    return name.startswith(HIDDEN)


def target_of(name: str) -> str:
    """The map for which a hidden one is; of another map, that map."""
    return name.split("/", 3)[-1] if name.startswith(HIDDEN) else name


def job_of(name: str) -> str:
    """The job to which a hidden map belongs; empty: it is none."""
    parts = name.split("/", 3)
    return parts[1] if len(parts) == 4 and name.startswith(HIDDEN) else ""


def kind_of(name: str) -> HiddenKind | None:
    """Return the kind of a hidden map; None: the map is not hidden."""
    if not name.startswith(HIDDEN):
        return None
    return next((kind for kind in HiddenKind if name[1:].startswith(f"{kind}/")), None)


def check_part(what: str, text: object) -> str:
    """Raises `UsageError` unless it can name a job or an attempt."""
    if not isinstance(text, str) or not _PART.fullmatch(text):
        raise UsageError(f"{text!r} cannot be a {what}: give 1 to {MAX_PART_LENGTH} letters, digits or any of .:#@+=-_")
    return text
