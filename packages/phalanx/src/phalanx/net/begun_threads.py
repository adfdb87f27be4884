"""Begin threads where the system can refuse one more: a process, its user and its control group have a limit of them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from phalanx.common.errors import UnavailableError


def begin_thread(work: Callable[[], object], name: str) -> threading.Thread:
    """Begin a daemon thread, and return it. Raises `UnavailableError` if the system refuses one more."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        why = f"thread {name!r} cannot be started: {error}"
        raise UnavailableError(f"{why}; look at the limits of the process, its user and its control group") from error
    return thread
