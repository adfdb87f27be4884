"""`phalanx members --promote` and `--demote`: let a live member hold data, or none."""

from __future__ import annotations

import time

from phalanx.cli.options import ask_any
from phalanx.client.ask import Inquirer
from phalanx.common.errors import ConnectError, UnavailableError, UsageError
from phalanx.common.ids import address_of, parse_address

WITHIN_S = 60.0
ASK_AGAIN_AFTER_S = 0.2


def change_lite(at: str, cluster: str, of: str, *, lite: bool) -> None:
    """Ask the member at an address until it is so, and its data, if it is to hold none any more, is with others.

    Raises `UsageError` where no member of the cluster is there, and `UnavailableError` where it takes longer than
    `WITHIN_S`, for example because no other member holds data.
    """
    address = parse_address(of)
    view = ask_any(at, cluster, Inquirer.members).view
    if address not in [address_of(member) for member in view.members]:
        there = ", ".join(address_of(member) for member in view.members)
        raise UsageError(f"{of!r} is no member of this cluster: give one of {there}")
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            ask_any(address, cluster, lambda inquirer: inquirer.change_lite(lite))
        except ConnectError:
            raise
        except UnavailableError as error:
            if time.monotonic() >= deadline:
                text = f"not yet after {WITHIN_S:.0f} s: {error}; it goes on waiting, and the opposite takes it back"
                raise UnavailableError(text) from error
            time.sleep(ASK_AGAIN_AFTER_S)
        else:
            return
