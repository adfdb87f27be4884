"""What each process of the command sets before it does its work."""

from __future__ import annotations

import gc
import io
import sys

from phalanx.reports.file_modes import keep_files_private

YOUNG_COLLECTION_AT = 20_000
"""Container objects made since the last young collection before the next. Messages and entries are not among them."""


def set_up_process() -> None:
    """Let stdout take all characters, and what is written be for few."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # do not fail at a tick if the terminal has another encoding
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.argv[1:2] != ["lock"]:  # which runs commands of users: what they write is theirs to say
        keep_files_private()


def collect_less_often() -> None:
    """Collect young objects less often: those of a member, and of modules that are loaded, live long."""
    gc.set_threshold(YOUNG_COLLECTION_AT, *gc.get_threshold()[1:])
