"""An operator's wish that a member fulfils when it can: asked again until it is so, or for long enough.

`phalanx members --promote|--demote`, `phalanx partitions --set-count`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from phalanx.client.ask import Inquirer, ask_any, find_master
from phalanx.common.errors import ConnectError, UnavailableError, UsageError
from phalanx.common.ids import Address, MemberId, address_of, parse_address

WITHIN_S = 60.0
ASK_AGAIN_AFTER_S = 0.2


def ask_until_done(
    whom: Callable[[], Address], cluster: str, wish: Callable[[Inquirer], Any], otherwise: str
) -> None:  # fmt: skip
    """Repeat a request to the member that `whom` names until it succeeds. Raises `UnavailableError` after `WITHIN_S`,
    with the reason and what it means (`otherwise`), and `ConnectError` at once if nobody answers there.
    """
    deadline = time.monotonic() + WITHIN_S
    while True:
        address = whom()
        try:
            ask_any(address, cluster, wish)
        except ConnectError:
            raise
        except UnavailableError as error:
            if time.monotonic() >= deadline:
                raise UnavailableError(f"not yet after {WITHIN_S:.0f} s: {error}; {otherwise}") from error
            time.sleep(ASK_AGAIN_AFTER_S)
        else:
            return


def find_member(at: str, cluster: str, of: str) -> tuple[MemberId, list[MemberId]]:
    """Return the member at an address, and the others. Raises `UsageError` where no member of the cluster is there."""
    address, members = parse_address(of), ask_any(at, cluster, Inquirer.members).view.members
    found = next((member for member in members if address_of(member) == address), None)
    if found is None:
        raise UsageError(f"{of!r} is not a member of this cluster: give one of {', '.join(map(address_of, members))}")
    return found, [member for member in members if member != found]


def change_lite(at: str, cluster: str, of: str, *, lite: bool) -> None:
    """Ask the member at an address until it is so, and its data, if it is to hold none any more, is with others.

    Raises `UsageError` where no member of the cluster is there, and `UnavailableError` where it takes too
    long, for example because no other member holds data.
    """
    address = address_of(find_member(at, cluster, of)[0])
    ask_until_done(
        lambda: address,
        cluster,
        lambda inquirer: inquirer.change_lite(lite),
        "the request stays, and takes effect as soon as it can; the opposite option cancels it",
    )


def divide(at: str, cluster: str, count: int) -> None:
    """Ask the master until there are `count` partitions. Raises `UsageError` for an impossible count.

    Migrations under way have to end first, and no other begins meanwhile: so that ends the wait, or its time does, with
    `UnavailableError`.
    """
    ask_until_done(
        lambda: find_master(at, cluster),
        cluster,
        lambda inquirer: inquirer.change_partition_count(count),
        "the master still waits for migrations to end: repeat the command",
    )
