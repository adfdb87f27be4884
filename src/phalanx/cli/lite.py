"""`phalanx members --promote` and `--demote`: let a live member hold data, or none."""

from __future__ import annotations

from phalanx.cli.until_done import ask_until_done
from phalanx.client.ask import Inquirer, ask_any
from phalanx.common.errors import UsageError
from phalanx.common.ids import address_of, parse_address


def change_lite(at: str, cluster: str, of: str, *, lite: bool) -> None:
    """Ask the member at an address until it is so, and its data, if it is to hold none any more, is with others.

    Raises `UsageError` where no member of the cluster is there, and `UnavailableError` where it takes too
    long, for example because no other member holds data.
    """
    address = parse_address(of)
    view = ask_any(at, cluster, Inquirer.members).view
    if address not in [address_of(member) for member in view.members]:
        there = ", ".join(address_of(member) for member in view.members)
        raise UsageError(f"{of!r} is no member of this cluster: give one of {there}")
    ask_until_done(
        lambda: address,
        cluster,
        lambda inquirer: inquirer.change_lite(lite),
        "it goes on waiting, and the opposite takes it back",
    )
