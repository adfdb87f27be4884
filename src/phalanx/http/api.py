"""`/api/...`: what the command line shows, as JSON. Everything is read; nothing here changes the cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from phalanx.common.errors import UnavailableError
from phalanx.http.served_member import Questions, ServedMember
from phalanx.http.shared_answer import SharedAnswer
from phalanx.operations import losses, maps, members, partitions, safety

Answer = Callable[[], Awaitable[dict[str, Any]]]


class Api:
    """The questions that can be asked of one member over HTTP."""

    def __init__(self, member: ServedMember, questions: Questions, cluster: str) -> None:
        self._member, self._questions, self._cluster = member, questions, cluster
        self._answers: dict[str, tuple[Answer, str]] = {
            "members": (self._members, "The member list, oldest first, as this member has it."),
            "partitions": (self._partitions, "Who holds what, and what is being moved."),
            "partitions/every": (
                self._every_partition,
                "The same, with the version and the replicas of each partition.",
            ),
            "maps": (self._maps, "The maps that have entries, with their sizes and settings."),
            "losses": (self._losses, "What the cluster has lost and nobody has acknowledged."),
            "safety": (self._safety, "Whether this member may be stopped now, and why not."),
        }

    def routes(self) -> list[Route]:
        """Return the routes of all questions, and of the OpenAPI document."""
        asked = [Route(f"/api/{name}", _as_json(answer)) for name, (answer, _) in self._answers.items()]
        return [*asked, Route("/api/openapi.json", _as_json(self._openapi))]

    async def _members(self) -> dict[str, Any]:
        told = await self._questions.members()
        lost = await self._questions.losses()
        return members.as_object(self._cluster, self._member.id, told.view, told.suspected) | losses.as_objects(lost)

    async def _partitions(self) -> dict[str, Any]:
        return partitions.as_object(*await self._questions.partitions(), every=False)

    async def _every_partition(self) -> dict[str, Any]:
        return partitions.as_object(*await self._questions.partitions(), every=True)

    async def _maps(self) -> dict[str, Any]:
        names, plan = await self._questions.maps()
        return {"maps": [maps.as_object(name, await self._member.map(name).size(), plan) for name in names]}

    async def _losses(self) -> dict[str, Any]:
        return losses.as_objects(await self._questions.losses())

    async def _safety(self) -> dict[str, Any]:
        found, own = await self._questions.safety()
        return safety.as_object(found, own)

    async def _openapi(self) -> dict[str, Any]:
        unavailable = {"description": "This member, or one that it needs, cannot answer now.", "content": _JSON}
        return {
            "openapi": "3.1.0",
            "info": {"title": "Phalanx member", "version": "1"},
            "paths": {
                f"/api/{name}": {
                    "get": {
                        "summary": said,
                        "operationId": name.replace("/", "_"),
                        "responses": {"200": {"description": said, "content": _JSON}, "503": unavailable},
                    }
                }
                for name, (_, said) in self._answers.items()
            },
        }


_JSON = {"application/json": {"schema": {"type": "object"}}}


def _as_json(answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    async def make() -> bytes:
        return msgspec.json.encode(await answer(), enc_hook=str) + b"\n"

    shared = SharedAnswer(make)

    async def respond(request: Request) -> Response:
        try:
            found, status = await shared.get(), 200
        except UnavailableError as error:
            found, status = msgspec.json.encode({"error": str(error)}) + b"\n", 503
        return Response(found, status, media_type="application/json")

    return respond
