"""A member that lives as long as an application, as Starlette and FastAPI test their applications."""

from __future__ import annotations

from typing import Annotated

import pytest
from fastapi import Depends, FastAPI, Request
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient as StarletteClient

import phalanx
from phalanx.integrations.asgi import lifespan
from phalanx.testing import LocalCluster


def grid_of(request: Request) -> phalanx.Member:
    grid: phalanx.Member = request.state.grid
    return grid


Grid = Annotated[phalanx.Member, Depends(grid_of)]


def service(config: phalanx.Config) -> FastAPI:
    app = FastAPI(lifespan=lifespan(config))

    @app.get("/hits/{page}")
    async def hits(page: str, grid: Grid) -> int:
        return int(await grid.map("hits").increment(page))

    return app


def members_seen(cluster: LocalCluster) -> int:
    view = cluster["A"].view
    return len(view.members) if view is not None else 0


def test_a_dependency_gives_the_member_of_the_application() -> None:
    with LocalCluster(1) as cluster:
        with TestClient(service(cluster.config())) as client:
            assert [client.get("/hits/home").json() for _ in range(3)] == [1, 2, 3]
            assert members_seen(cluster) == 2
        assert members_seen(cluster) == 1
        assert cluster["A"].map("hits")["home"] == 3


def test_an_application_serves_while_the_other_members_crash() -> None:
    with LocalCluster(2) as cluster, TestClient(service(cluster.config())) as client:
        for number in range(60):
            if number == 30:
                cluster.kill("A")
            assert client.get("/hits/home").json() == number + 1


def test_a_name_is_chosen_and_errors_of_the_start_reach_the_server() -> None:
    async def size(request: Request) -> PlainTextResponse:
        return PlainTextResponse(str(await request.state.cache.map("m").size()))

    app = Starlette(
        routes=[Route("/size", size)], lifespan=lifespan(phalanx.Config(port=0), name="cache", stop_within=5)
    )
    with StarletteClient(app) as client:
        assert client.get("/size").text == "0"

    with LocalCluster(1) as cluster:
        taken = phalanx.Config(port=int(cluster.addresses[0].rpartition(":")[2]))
        with pytest.raises(phalanx.UsageError, match="cannot listen"), TestClient(service(taken)):
            pass
