"""`phalanx partitions --set-count`: divide the partitions of a live cluster."""

from __future__ import annotations

from phalanx.cli.until_done import ask_until_done
from phalanx.client.ask import find_master


def divide(at: str, cluster: str, count: int) -> None:
    """Ask the master until there are so many. Raises `UsageError` for a count that cannot be.

    Migrations under way have to end first, and no other begins meanwhile: so that ends the wait, or its time does, with
    `UnavailableError`.
    """
    ask_until_done(
        lambda: find_master(at, cluster),
        cluster,
        lambda inquirer: inquirer.change_partition_count(count),
        "the master goes on waiting, ask again",
    )
