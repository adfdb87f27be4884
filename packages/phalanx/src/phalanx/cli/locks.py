"""`phalanx lock show|run`: look at a lock, and run a command while it is held."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Annotated

import typer

from phalanx.cli.app import CommandGroup, fail
from phalanx.cli.failures import note
from phalanx.cli.maps import KeyOption, connect
from phalanx.cli.options import At, ClusterName, Json, SecretFile
from phalanx.cli.output import print_json
from phalanx.client.blocking.sync_locks import SyncLock
from phalanx.client.sync import Client
from phalanx.common.errors import LockLost, PhalanxError, UsageError
from phalanx.common.seeds import DEFAULT_MEMBERS
from phalanx.common.words import quoted
from phalanx.maps.locks import LEASE_S, WAIT_S
from phalanx.reports.entries import KeyType, to_key
from phalanx.reports.locks import as_object
from phalanx.runtime.process.signals import SIGNALLED, ended_by_signals

app = typer.Typer(name="lock", cls=CommandGroup, help="Show a lock or semaphore, or run a command while it is held.")

NOT_HAD = 1
"""The exit status where the lock was not to be had, and the command was not run."""
LOST = 70
"""The exit status where the lock was lost while the command ran. (EX_SOFTWARE of sysexits.h.)"""
LOOK_S = 0.05
"""Between two looks at the command and its lock."""
END_S = 10.0
"""How long a command has to end after its lock was lost, or after this process was told to end, before it is killed."""

Named = Annotated[str, typer.Argument(metavar="NAME", help="Name of the lock; with --map a key of the map.")]
OfMap = Annotated[str | None, typer.Option("--map", help="The lock is that of a key of this map.", show_default="none")]
Permits = Annotated[int, typer.Option(help="It is a semaphore with this number of permits.", show_default="a lock")]


def _lock_of(
    grid: Client, name: str, map_name: str | None, key_type: KeyType, permits: int, lease: float, wait: float | None
) -> SyncLock:
    of = grid if map_name is None else grid.map(map_name)
    key = to_key(name, key_type)
    if permits:
        return of.semaphore(key, permits, lease=lease, wait=wait)
    return of.lock(key, lease=lease, wait=wait)


@app.command()
def show(
    name: Named,
    at: At = DEFAULT_MEMBERS,
    map_name: OfMap = None,
    key_type: KeyOption = KeyType.STR,
    permits: Permits = 0,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Show who holds a lock, when its lease ends, and how many callers wait."""
    with connect(at, cluster) as grid:
        found = _lock_of(grid, name, map_name, key_type, permits, LEASE_S, WAIT_S).status()
    description = as_object(name, map_name, found)
    if json:
        print_json(description)
        return
    held = description["holders"]
    if not held:
        print("free")
    for each in held:
        print(f"held by {each['holder']}, token {each['token']}, for {each['lease_left_s']} s unless it is renewed")
    if found.waiting:
        print(f"{found.waiting} waiting")


@app.command(context_settings={"ignore_unknown_options": True})
def run(
    name: Named,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND…", help="The command, after --.")],
    at: At = DEFAULT_MEMBERS,
    map_name: OfMap = None,
    key_type: KeyOption = KeyType.STR,
    permits: Permits = 0,
    lease: Annotated[
        float, typer.Option(help="The lock becomes free this many seconds after this process has ended.")
    ] = LEASE_S,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the lock.")] = WAIT_S,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
) -> None:
    """Run a command while a lock is held, and return its exit status.

    The command finds its fencing token in FENCING_TOKEN. If others hold the lock for the whole wait, the command does not run,
    and the status is 1. If the lock is lost meanwhile, the command is stopped, and the status is 70. SIGTERM, SIGHUP and an
    interrupt also stop the command, and free the lock.
    """
    what = f"{'semaphore' if permits else 'lock'} {quoted(name)}"
    with ended_by_signals(), connect(at, cluster) as grid:
        lock = _lock_of(grid, name, map_name, key_type, permits, lease, wait)
        if not lock.acquire():
            fail(f"{what} was held by others for {wait:g} s", status=NOT_HAD)
        status = _run_while_held(command, lock)
        if status is None or not _release(lock):
            fail(
                f"{what} was lost while the command ran: it was not renewed within its lease of {lease:g} s",
                status=LOST,
            )
    raise typer.Exit(status)


def _release(lock: SyncLock) -> bool:
    """Release the lock, if anybody can be asked. Return False if it was lost meanwhile."""
    try:
        lock.release()
    except LockLost:
        return False
    except PhalanxError as error:
        note(f"{error}; the lock is free when its lease ends")
    return True


def _run_while_held(command: list[str], lock: SyncLock) -> int | None:
    """Run the command, and return its exit status; None: the lock was lost before the command ended."""
    try:
        process = subprocess.Popen(command, env={**os.environ, "FENCING_TOKEN": str(lock.token)})
    except OSError as error:
        raise UsageError(f"{command[0]}: {error.strerror}") from error
    try:
        while process.poll() is None and lock.is_held:
            time.sleep(LOOK_S)
        was_held = lock.is_held
    finally:
        _end(process)
    status = process.wait()
    if not was_held:
        return None
    return status if status >= 0 else SIGNALLED - status


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process if it still runs: politely at first; at once, if this one is told a second time to end."""
    if process.poll() is not None:
        return
    try:
        process.send_signal(signal.SIGTERM)
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
    except BaseException:
        process.kill()
        raise
    finally:
        process.wait()
