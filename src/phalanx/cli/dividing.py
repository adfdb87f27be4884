"""`phalanx partitions --set-count`: divide the partitions of a live cluster."""

from __future__ import annotations

import time

from phalanx.cli.options import ask_any
from phalanx.client.ask import Inquirer
from phalanx.common.errors import ConnectError, UnavailableError
from phalanx.common.ids import address_of

DIVIDE_WITHIN_S = 60.0
ASK_AGAIN_AFTER_S = 0.2


def divide(at: str, cluster: str, count: int) -> None:
    """Ask the master until there are so many. Raises `UsageError` for a count that cannot be.

    Migrations under way have to end first, and no other begins meanwhile: so that ends the wait, or `DIVIDE_WITHIN_S`
    does, with `UnavailableError`.
    """
    deadline = time.monotonic() + DIVIDE_WITHIN_S
    while True:
        master = address_of(ask_any(at, cluster, Inquirer.placement).view.master)
        try:
            ask_any(master, cluster, lambda inquirer: inquirer.change_partition_count(count))
        except ConnectError:
            raise
        except UnavailableError as error:
            if time.monotonic() >= deadline:
                text = f"not yet after {DIVIDE_WITHIN_S:.0f} s: {error}; the master goes on waiting, ask again"
                raise UnavailableError(text) from error
            time.sleep(ASK_AGAIN_AFTER_S)
        else:
            return
