"""An operator's wish that a member fulfils when it can: asked again until it is so, or for long enough."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from phalanx.client.ask import Inquirer, ask_any
from phalanx.common.errors import ConnectError, UnavailableError
from phalanx.common.ids import Address

WITHIN_S = 60.0
ASK_AGAIN_AFTER_S = 0.2


def ask_until_done(
    whom: Callable[[], Address], cluster: str, wish: Callable[[Inquirer], Any], otherwise: str
) -> None:  # fmt: skip
    """Ask the member that `whom` names each time until nothing stands in the way. Raises `UnavailableError` after `WITHIN_S`,
    with what still does and what to make of it (`otherwise`), and `ConnectError` at once where nobody is there.
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
