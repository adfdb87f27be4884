"""A member that lives as long as an ASGI application: Starlette, FastAPI, and others that take a lifespan."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from phalanx.common.durations import Duration
from phalanx.runtime.member import Member, start_member
from phalanx.runtime.settings.config import Config

Lifespan = Callable[[Any], AbstractAsyncContextManager[dict[str, Member]]]


def lifespan(config: Config | None = None, *, name: str = "grid", stop_within: Duration = 60.0) -> Lifespan:
    """Return a lifespan: it starts a member in the application's event loop, and stops it when the server shuts down.

    Requests find the member as `request.state.grid` (or under another `name`). `config`: None is `Config()`; give a range of
    ports if the server has several workers. `stop_within`: how long the member hands over what it holds when it stops. An
    error of the member ends it, and not the application. Raises, when the server starts, as `start_member` does.
    """

    @asynccontextmanager
    async def span(app: Any) -> AsyncIterator[dict[str, Member]]:
        member = await start_member(config)
        try:
            yield {name: member}
        finally:
            await member.stop(timeout_s=stop_within)

    return span
