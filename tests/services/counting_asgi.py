"""The same service as an ASGI application: a member in the event loop of each worker."""

from __future__ import annotations

import os

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import phalanx
from phalanx.integrations.asgi import lifespan


async def count(request: Request) -> PlainTextResponse:
    grid: phalanx.Member = request.state.grid
    try:
        return PlainTextResponse(str(await grid.map("counts").increment(request.path_params["name"])))
    except phalanx.IndeterminateWrite as error:
        return PlainTextResponse(str(error), 500)
    except phalanx.UnavailableError as error:
        return PlainTextResponse(str(error), 503)


async def worker(request: Request) -> PlainTextResponse:
    grid: phalanx.Member = request.state.grid
    members = len(grid.view.members) if grid.view is not None else 0
    return PlainTextResponse(f"{os.getpid()} {members} {await grid.map('counts').size()}")


app = Starlette(
    routes=[Route("/count/{name}", count), Route("/worker", worker)],
    lifespan=lifespan(phalanx.Config(port=os.environ["PORTS"], cluster=os.environ["CLUSTER"])),
)
