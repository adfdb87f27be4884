"""`/api/…`: what the command line shows, as JSON. Everything is read; nothing here changes the cluster.

An answer is made once for all who ask the same at about the same time. Questions with a query have fewer askers and cost more, so
they are answered one after another; `MOST_KEPT` different ones share their answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from importlib.metadata import version
from typing import Any, Final, NamedTuple

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from phalanx.common.errors import PhalanxError, UsageError
from phalanx.http import answers
from phalanx.http.asked import Asked
from phalanx.http.openapi import Parameter, Shape, document
from phalanx.http.served_member import Questions, ServedMember
from phalanx.http.shared_answer import SharedAnswer
from phalanx.reports.entries import KeyType
from phalanx.reports.why import UnknownSubject

MOST_KEPT: Final = 64
"""So many different questions share their answers; the oldest gives way."""
MOST_LETTERS: Final = 4_096
"""The longest query."""
ANSWER_WITHIN_S: Final = 8.0
"""Below the time after which a request is cancelled: so the caller gets the reason."""

Query = Mapping[str, list[str]]
Answer = Callable[[Query], Awaitable[Any]]


class Question(NamedTuple):
    """What can be asked, and who answers."""

    shape: Shape
    answer: Answer


class Api:
    """The questions that can be asked of one member over HTTP."""

    def __init__(self, member: ServedMember, questions: Questions, cluster: str, *, has_token: bool = False) -> None:
        self._has_token = has_token
        self._turn = asyncio.Lock()
        """Questions with a query are answered one after another."""
        self._questions = list(_questions(Asked(member, questions, cluster)))

    def routes(self) -> list[Route]:
        """Return the routes of all questions, and of the OpenAPI document."""
        asked = [Route(each.shape.path, self._respond(each)) for each in self._questions]
        return [*asked, Route("/api/openapi.json", _respond_alike(self._openapi))]

    def _respond(self, question: Question) -> Callable[[Request], Awaitable[Response]]:
        if not question.shape.parameters:
            return _respond_alike(lambda: question.answer({}))
        kept: dict[tuple[tuple[str, tuple[str, ...]], ...], SharedAnswer] = {}

        async def answer(query: Query) -> Any:
            async with self._turn:
                return await question.answer(query)

        async def respond(request: Request) -> Response:
            try:
                query = _read_query(request.query_params, question.shape)
            except UsageError as error:
                return _failure(error)
            key = tuple((name, tuple(values)) for name, values in sorted(query.items()))
            shared = kept.pop(key, None) or SharedAnswer(lambda: _made(lambda: answer(query)))
            kept[key] = shared
            if len(kept) > MOST_KEPT:
                del kept[next(iter(kept))]
            return await _answered(shared)

        return respond

    async def _openapi(self) -> dict[str, Any]:
        return document((each.shape for each in self._questions), version("phalanx"), has_token=self._has_token)


def _questions(asked: Asked) -> Iterator[Question]:
    def alike(name: str, said: str, answer: Any, make: Callable[[], Awaitable[Any]]) -> Question:
        return Question(Shape(f"/api/{name}", said, (answer,)), lambda _: make())

    yield alike("status", "The whole cluster, and whether all is well.", answers.StatusAnswer, asked.status)
    yield alike("members", "The member list, oldest first, as this member has it.", answers.Members, asked.members)
    yield alike("partitions", "Who holds what, and what is being moved.", answers.Partitions, asked.partitions)
    said = "The same, with the version and the replicas of each partition."
    yield alike("partitions/every", said, answers.EveryPartition, asked.every_partition)
    yield alike("maps", "The maps that have entries, with their sizes and settings.", answers.Maps, asked.maps)
    yield alike("losses", "What the cluster has lost and nobody has acknowledged.", answers.Losses, asked.losses)
    yield alike("safety", "Whether this member may be stopped now, and why not.", answers.Safety, asked.safety)
    of_map = Parameter(
        "map", "Name of the map, or the beginning of names and *; without it: all that have settings of their own."
    )
    said = "The settings of one map, or of all that have settings of their own."
    yield Question(Shape("/api/settings", said, (answers.Settings,), (of_map,)), asked.settings)
    said = "A member: host:port, an identity, the beginning of an incarnation. Or a partition's number."
    subject = Parameter("subject", said, required=True)
    said = "What happened to a member or a partition, who decided it, and by which rule."
    yield Question(Shape("/api/why", said, (answers.MemberStory, answers.PartitionStoryAnswer), (subject,)), asked.why)
    said = "Pairs that cannot talk: A-B; racks: B1,B2-C1,C2; with all others: B-*. Names are addresses or ports."
    cut = Parameter("cut", said, repeated=True)
    said = "Which members would be kept if some pairs could not talk, and why."
    yield Question(Shape("/api/what-if", said, (answers.WhatIf,), (cut,)), asked.what_if)
    parameters = (
        Parameter("name", "Its name; with map a key of the map.", required=True),
        Parameter("map", "The map of whose key it is the lock."),
        Parameter("key_type", "The type of the key; str by default.", kind=KeyType),
        Parameter("permits", "It is a semaphore, and this is the number of its permits.", kind=int),
    )
    yield Question(
        Shape("/api/lock", "Who holds a lock, and how many wait.", (answers.LockStateAnswer,), parameters), asked.lock
    )


def _read_query(given: QueryParams, shape: Shape) -> dict[str, list[str]]:
    """Return the parameters with their values. Raises `UsageError` if one is missing, unknown or malformed."""
    if sum(len(name) + len(value) for name, value in given.multi_items()) > MOST_LETTERS:
        raise UsageError(f"the query has more than {MOST_LETTERS:,} letters; ask by the command line")
    known = {each.name: each for each in shape.parameters}
    found: dict[str, list[str]] = {}
    for name, value in given.multi_items():
        if name not in known:
            raise UsageError(f"{shape.path} has no parameter {name!r}; it has: {', '.join(known)}")
        found.setdefault(name, []).append(value)
        if len(found[name]) > 1 and not known[name].repeated:
            raise UsageError(f"{name} is given several times")
    for each in shape.parameters:
        if each.required and each.name not in found:
            raise UsageError(f"{shape.path} needs {each.name}: {each.said}")
    return found


def _respond_alike(make: Callable[[], Awaitable[Any]]) -> Callable[[Request], Awaitable[Response]]:
    shared = SharedAnswer(lambda: _made(make))

    async def respond(request: Request) -> Response:
        return await _answered(shared)

    return respond


async def _made(make: Callable[[], Awaitable[Any]]) -> bytes:
    async with asyncio.timeout(ANSWER_WITHIN_S):
        return msgspec.json.encode(await make(), enc_hook=str) + b"\n"


async def _answered(shared: SharedAnswer) -> Response:
    try:
        return Response(await shared.get(), media_type="application/json")
    except (PhalanxError, TimeoutError) as error:
        return _failure(error)


def _failure(error: PhalanxError | TimeoutError) -> Response:
    status = 400 if isinstance(error, UsageError) else 404 if isinstance(error, UnknownSubject) else 503
    said = (
        str(error)
        or f"not answered within {ANSWER_WITHIN_S:g} s: a member that is needed hangs, or there are many requests"
    )
    return Response(msgspec.json.encode({"error": said}) + b"\n", status, media_type="application/json")
