"""Who can read what is written: logs, exports and reports tell what is in maps. Their user and group, or fewer if the umask says so."""

from __future__ import annotations

import os
from typing import Final

FILE_MODE: Final = 0o640
OTHERS: Final = 0o027
"""What other users must not be able to do, as a umask."""


def open_private(path: str, flags: int) -> int:
    """Open a file for `open(…, opener=open_private)`: a new one is for its user and group."""
    return os.open(path, flags, FILE_MODE)


def keep_files_private() -> None:
    """Let all that this process makes from now on be for its user and group at most, also what libraries write for it."""
    os.umask(os.umask(OTHERS) | OTHERS)
