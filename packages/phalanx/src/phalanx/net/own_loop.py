"""What holds connections belongs to one event loop: how it is closed from another one, as of another thread or the next test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from phalanx.common.errors import UsageError

OTHER_LOOP: Final = "it belongs to another event loop, which alone may use it: make it in the loop that uses it, or use the blocking client"
LOOK_EVERY_S: Final = 0.5
"""Between two looks whether the other loop still runs."""


async def in_own_loop(
    loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, None]], what: str
) -> None:
    """Do the work in the loop of `what`, which another thread runs. Nothing is left to do if that loop is closed: its connections
    went with it. Raises `UsageError` if it is not, and does not run or stops meanwhile: nobody would do the work then."""
    if loop.is_closed():
        return
    if loop.is_running():
        done = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), loop))
        while loop.is_running():
            await asyncio.wait([done], timeout=LOOK_EVERY_S)
            if done.done():
                return done.result()
    if not loop.is_closed():
        raise UsageError(f"{what} cannot be closed here: {OTHER_LOOP}")
