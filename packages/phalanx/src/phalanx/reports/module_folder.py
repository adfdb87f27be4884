"""Where a command finds the modules that it is told to run: functions that change values, planted bugs.

Only a command that names modules looks into the folder in which it runs, behind all other places: a file in it that is named like a
package (`uvicorn.py` in a folder of downloads) must never stand for that.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
import sys

from phalanx.common.errors import UsageError


def find_modules_here(setting: str) -> None:
    """Let modules be found in the present folder, too. `setting`: names them. Raises `UsageError` if others can write into the folder."""
    folder = os.getcwd()
    if folder in sys.path:
        return  # somebody has said so (PYTHONPATH)
    status = os.stat(folder)
    who = _who_else_writes(status)
    if who:
        raise UsageError(
            f"{setting}: modules are looked for in {folder}, into which {who} can write (mode {stat.S_IMODE(status.st_mode):03o}), and so "
            f"run code here: make it yours alone (chmod go-w), or if that is meant so, set PYTHONPATH={folder}"
        )
    sys.path.append(folder)


def _who_else_writes(status: os.stat_result) -> str:
    """Return who can write into a folder besides this user and root; empty: nobody."""
    if status.st_uid not in (0, os.getuid()):
        return "its owner, another user,"
    if status.st_mode & stat.S_IWOTH:
        return "everybody"
    if status.st_mode & stat.S_IWGRP and not _is_own_group(status):
        return "its group"
    return ""


def _is_own_group(status: os.stat_result) -> bool:
    """Return whether the group is of the owner alone, as many systems make one for each user."""
    try:
        user, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    return group.gr_gid == user.pw_gid and group.gr_name == user.pw_name and {*group.gr_mem} <= {user.pw_name}
