"""`/livez`, `/readyz` and `/safez`: what orchestrators ask. Status 200 is yes, 503 is no; the body says why, a reason a line.

They need no token: whoever watches the process, such as a kubelet, has none.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse

from phalanx.common.errors import UnavailableError
from phalanx.http.served_member import Questions, ServedMember

YES, NO = 200, 503


class Probes:
    """The probes of one member."""

    def __init__(self, member: ServedMember, questions: Questions) -> None:
        self._member = member
        self._questions = questions

    async def livez(self, request: Request) -> PlainTextResponse:
        """Whether the process works: its loop answers, and the member has not failed. Restart it if not."""
        return _answer(["this member has ended"] if self._member.is_over else [], "alive")

    async def readyz(self, request: Request) -> PlainTextResponse:
        """Whether callers may be sent here: it has joined, knows that it is a member, and is not leaving."""
        member = self._member
        against = []
        if member.is_over:
            against.append("this member has ended")
        elif member.node.membership.view is None:
            against.append("it has not joined a cluster yet")
        elif not member.has_started:
            against.append("the cluster waits for more members before it begins")
        elif not member.node.serves(member.now()):
            against.append("it does not know whether it is still a member: it was paused, or hears nobody")
        if member.is_leaving:
            against.append("it is leaving")
        return _answer(against, "ready")

    async def safez(self, request: Request) -> PlainTextResponse:
        """Whether the member may be killed now without losing data; with `?graceful`, whether SIGTERM is safe."""
        graceful = "graceful" in request.query_params
        try:
            found, _ = await self._questions.safety()
        except UnavailableError as error:
            return _answer([str(error)], "")
        against = found.against_leaving if graceful else found.against_kill
        return _answer([reason.said for reason in against], "safe to stop" if graceful else "safe to kill")


def _answer(against: list[str], yes: str) -> PlainTextResponse:
    text = "\n".join(against) if against else yes
    return PlainTextResponse(f"{text}\n", NO if against else YES)
