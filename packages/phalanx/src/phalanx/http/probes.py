"""`/livez`, `/readyz` and `/safez`: what orchestrators ask. Status 200 is yes, 503 is no; the body says why, a reason a line.

They need no token: the program that watches the process, such as a kubelet, has none.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from phalanx.common.errors import ClientClosed, UnavailableError
from phalanx.http.served_member import Questions, ServedMember, why_not_ready

YES, NO = 200, 503


class Probes:
    """The probes of one member."""

    def __init__(self, member: ServedMember, questions: Questions) -> None:
        self._member = member
        self._questions = questions

    def routes(self) -> list[Route]:
        """Return the routes of all probes."""
        return [Route("/livez", self.livez), Route("/readyz", self.readyz), Route("/safez", self.safez)]

    async def livez(self, request: Request) -> PlainTextResponse:
        """Answer whether the process works: its event loop answers, and the member has not failed. Restart it if not."""
        return _answer(["this member has ended"] if self._member.is_over else [], "alive")

    async def readyz(self, request: Request) -> PlainTextResponse:
        """Answer whether this member can serve requests: it has joined, knows that it is a member, and is not leaving."""
        return _answer(why_not_ready(self._member), "ready")

    async def safez(self, request: Request) -> PlainTextResponse:
        """Answer whether the member can be killed now without loss of data; with `?graceful`, whether SIGTERM is safe."""
        graceful = "graceful" in request.query_params
        try:
            found, _ = await self._questions.safety()
        except (ClientClosed, UnavailableError) as error:
            return _answer([str(error)], "")
        against = found.against_leaving if graceful else found.against_kill
        return _answer([reason.said for reason in against], "safe to stop" if graceful else "safe to kill")


def _answer(against: list[str], yes: str) -> PlainTextResponse:
    text = "\n".join(against) if against else yes
    return PlainTextResponse(f"{text}\n", NO if against else YES)
