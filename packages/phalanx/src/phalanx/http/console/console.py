"""The console of one member: its routes, and the data that its views get in each round."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from phalanx.common.errors import UnavailableError, UsageError
from phalanx.common.map_settings import MAP_SETTINGS
from phalanx.common.view import MembersView
from phalanx.http.console import pages, sections
from phalanx.http.console.changes import ChangeRefused, Changes
from phalanx.http.console.cluster_activity import ClusterActivity
from phalanx.http.console.hub import EVERY_S, Hub, encoder
from phalanx.http.console.lacking import LackingSince
from phalanx.http.console.lookups import Lookups, as_response, query_of
from phalanx.http.console.map_figures import MapFigures, uncounted
from phalanx.http.console.peers import Peers
from phalanx.http.console.story import ClusterStory
from phalanx.http.metric_families import RELEASE, Sources
from phalanx.http.served_member import Questions
from phalanx.reports.entries import KeyType

HISTORIES_EVERY_S: Final = 5.0
"""Others are asked for their decisions so often, and at once when this member has recorded something itself."""
LOOK_EVERY_S: Final = 0.5
"""So often this member looks whether its table or member list is another one, whether or not a console is open."""
MOST_NEW: Final = 400
"""The most events that are pushed in one round; of more, those about partitions are left out."""


class ConsolePage:
    """What `/` and `/console/...` answer."""

    def __init__(
        self,
        sources: Sources,
        questions: Questions,
        cluster: str,
        most_viewers: int,
        *,
        may_look: bool,
        may_change: bool,
    ) -> None:
        self._member, self._sources, self._questions = sources.member, sources, questions
        self._cluster, self._may_look = cluster, may_look
        self._hub = Hub(self._make, self._whole_story, self._hello, most_viewers)
        self._activity = ClusterActivity()
        self._peers = Peers(questions, self._activity)
        self._story = ClusterStory(sources.recent)
        self._maps = MapFigures(questions)
        self._lookups = Lookups(sources.member, questions)
        self._changes = Changes(questions, may_change)
        self._lacking = LackingSince()
        self._ticker: asyncio.TimerHandle | None = None
        self._sent: dict[str, bytes] = {}
        """Section to the text that was handed on last."""
        self._histories_at = -HISTORIES_EVERY_S
        self._recorded = -1
        """How many events this process had recorded when others were asked last."""

    # --- its life ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to look since when partitions lack a replica, and to hear of events."""
        self._sources.recent.tell(self._hub.hurry)
        self._look()

    def end(self) -> None:
        self._sources.recent.tell(None)
        if self._ticker is not None:
            self._ticker.cancel()
        for each in (self._hub, self._peers, self._maps):
            each.end()

    def _look(self) -> None:
        self._ticker = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._look)
        self._look_at_table()

    def _look_at_table(self) -> bool:
        node = self._member.node
        return self._lacking.look(node.membership.view, node.installed_table.table)

    # --- routes -----------------------------------------------------------------------------------------------------

    def routes(self) -> list[Route]:
        """Return the routes of the page, its stream and what it asks for."""
        return [
            *pages.routes(),
            Route("/console/stream", _Stream(self._hub), methods=["GET"]),
            Route("/console/what-if", self._respond_what_if),
            Route("/console/entries", self._respond_entries),
            Route("/console/partition", self._respond_partition),
            Route("/console/settings", self._respond_settings, methods=["POST"]),
        ]

    @property
    def streams(self) -> frozenset[str]:
        """Return the paths whose responses have no end."""
        return frozenset(["/console/stream"])

    async def _respond_what_if(self, request: Request) -> Response:
        async def answer() -> Any:
            return await self._lookups.what_if(query_of(request, (), ("cut",)))

        return await as_response(self._lookups.in_turn(answer))

    async def _respond_entries(self, request: Request) -> Response:
        if not self._may_look:
            said = "the cluster has a secret, and this port has no token: give an http_token_file to see the entries of maps here"
            return JSONResponse({"error": said}, 403)

        async def answer() -> Any:
            query = query_of(request, ("map", "key", "key_type", "where", "after"))
            if query["map"] is None:
                raise UsageError("map: say which map")
            return await self._lookups.entries(query)

        return await as_response(self._lookups.in_turn(answer))

    async def _respond_partition(self, request: Request) -> Response:
        async def answer() -> Any:
            number = query_of(request, ("number",))["number"] or ""
            view, count = self._member.node.membership.view, self._member.node.installed_table.table.partition_count
            if view is None:
                raise UnavailableError("this member is in no cluster")
            if not (number.isascii() and number.isdecimal() and len(number) < 7 and int(number) < count):
                raise UsageError(f"number: give a partition, 0 to {count - 1}")
            return await self._lookups.partition(int(number), view.members)

        return await as_response(self._lookups.in_turn(answer))

    async def _respond_settings(self, request: Request) -> Response:
        try:
            response = await as_response(self._changes.change(request))
        except ChangeRefused as error:
            return JSONResponse({"error": str(error)}, 403)
        self._maps.forget_sizes()
        self._hub.hurry()
        return response

    # --- a round ----------------------------------------------------------------------------------------------------

    def _hello(self) -> bytes:
        return encoder.encode(
            {
                "cluster": self._cluster,
                "this": self._member.address,
                "release": RELEASE,
                "may_look": self._may_look,
                "may_change": self._changes.may_change,
                "key": self._changes.key if self._changes.may_change else "",
                "choices": {name: setting.choices for name, setting in MAP_SETTINGS.items() if setting.choices},
                "key_types": [each.value for each in KeyType],
                "now": time.time_ns() // 1_000_000,
            }
        )

    async def _make(self) -> dict[str, bytes]:
        """Return the texts that have changed. What this member knows itself is not delayed by others that are silent."""
        if self._hub.is_fresh:
            self._sent.clear()
            self._maps.forget_sizes()
        view = self._member.node.membership.view
        if view is not None:
            await self._peers.ask(view.members, view.master)
            await self._ask_histories(view)
        view = self._member.node.membership.view  # it can be another one by now
        found: dict[str, Any] = {"activity": self._about_activity(view)} if view is not None else {}
        found |= {"cluster": sections.cluster(self._member, view, self._peers.answers)}
        if view is not None:
            found |= await self._about(view)
        new = await self._story.read_on()
        if new:
            # Of a rebalancing there are hundreds; the page asks for those of a partition that is looked at.
            kept = new if len(new) <= MOST_NEW else [each for each in new if each["partition"] is None][-MOST_NEW:]
            found["events"] = {"events": kept, "left_out": len(new) - len(kept)}
        found["lines"] = self._story.lines.as_objects()
        found["news"] = self._story.lines.news(time.time_ns() // 1_000_000)
        texts = {name: encoder.encode(each) for name, each in found.items()}
        changed = {name: text for name, text in texts.items() if self._sent.get(name) != text}
        self._sent |= changed
        return changed

    def _about_activity(self, view: MembersView) -> Any:
        answers = self._peers.answers
        self._activity.forget_members(set(view.members))
        telling = [each for each, its in answers.items() if its.activity is not None]
        return self._activity.as_object(view.members, telling, uncounted(answers))

    async def _about(self, view: MembersView) -> dict[str, Any]:
        table = self._member.node.installed_table.table
        self._look_at_table()
        try:
            lost = await self._questions.losses()
        except UnavailableError:
            lost = None
        found = {
            "partitions": sections.partitions(view, table, self._lacking.since),
            "moves": sections.moves(self._peers.migrations),
            "safety": sections.safety_of_all(view, self._peers.answers, self._peers.migrations, lost),
        }
        maps = await self._maps.make(table.maps, self._peers.answers)
        return found if maps is None else found | {"maps": maps}

    async def _ask_histories(self, view: MembersView) -> None:
        recorded, now = self._story.recorded, time.monotonic()
        is_due = now - self._histories_at >= HISTORIES_EVERY_S
        if not is_due and (recorded == self._recorded or now - self._histories_at < EVERY_S):
            return
        self._recorded, self._histories_at = recorded, now
        others = tuple(each for each in view.members if each != self._member.id)
        self._story.forget_members(set(view.members))
        await self._peers.ask_histories(others, self._story.take)

    def _whole_story(self) -> bytes:
        return encoder.encode(self._story.whole())


class _Stream:
    """The stream as an ASGI application: Starlette would make a request and a response of a function."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._hub.serve(scope, receive, send)
