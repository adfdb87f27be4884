"""Push texts to all viewers of the console. A text is made once for all viewers, and not at all if there are none.

Each viewer is a response of server-sent events. Of a viewer that reads slowly, only the latest text of each section waits,
so what it costs is bounded; the connection of one that reads nothing for `SEND_WITHIN_S` is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from phalanx.http.shared_answer import log_failure

logger = logging.getLogger("phalanx.http")

EVERY_S: Final = 1.0
"""The pause between two rounds."""
AT_LEAST_S: Final = 0.25
"""Events begin a round at once, but rounds are at least so far apart."""
SEND_WITHIN_S: Final = 10.0
KEEP_ALIVE_S: Final = 15.0
MOST_DELTAS: Final = 100
"""A viewer with more pieces of the story waiting than this is sent the whole of it instead."""
STORY: Final = "story"
"""The section that is sent whole to a new viewer, and then in pieces, as `events`."""

Make = Callable[[], Awaitable[dict[str, bytes]]]
"""Makes a round: the texts of the sections that have changed, as JSON. `events` holds what is new in the story."""


def as_event(name: str, text: bytes) -> bytes:
    """Return a server-sent event. JSON has no line breaks."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), text)


class _Viewer:
    def __init__(self) -> None:
        self.waiting: dict[str, bytes] = {}
        """Section to its latest text, where the viewer has an older one."""
        self.pieces: list[bytes] = []
        """What is new in the story, in order."""
        self.wants_story = True
        self.wake = asyncio.Event()


class Hub:
    """The viewers of one member's console, and the task that makes what they see."""

    def __init__(self, make: Make, story: Callable[[], bytes], hello: Callable[[], bytes], most_viewers: int) -> None:
        """`story`: returns the whole story, as of the last round. `hello`: returns what a viewer is told first."""
        self._make, self._story, self._hello, self._most = make, story, hello, most_viewers
        self._viewers: set[_Viewer] = set()
        self._latest: dict[str, bytes] = {}
        self._left = 0
        """How often the last viewer has gone."""
        self._hurry = asyncio.Event()
        self._making: asyncio.Task[None] | None = None
        self._is_over = False

    @property
    def is_fresh(self) -> bool:
        """Whether nobody was told anything yet, or all who were have gone."""
        return not self._latest

    def hurry(self) -> None:
        """Begin the next round soon: something has happened."""
        self._hurry.set()

    def end(self) -> None:
        """Make nothing more, and end all responses: the member ends."""
        self._is_over = True
        if self._making is not None:
            self._making.cancel()
        for viewer in self._viewers:
            viewer.wake.set()

    # --- one task for all -------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        try:
            while self._viewers:
                self._hurry.clear()
                left = self._left
                try:
                    texts = await self._make()
                    # Made for viewers who have gone meanwhile, it lacks what they had been told, and the next ones have not.
                    if left == self._left:
                        self._hand_on(texts)
                except Exception as error:  # the next round can do better
                    logger.warning("the console: a round failed: %r", error)
                await asyncio.sleep(AT_LEAST_S)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(EVERY_S - AT_LEAST_S):
                        await self._hurry.wait()
        finally:
            self._making = None

    def _hand_on(self, texts: dict[str, bytes]) -> None:
        piece = texts.pop("events", None)
        framed = {name: as_event(name, text) for name, text in texts.items()}
        self._latest |= framed
        new = as_event("events", piece) if piece is not None else None
        whole: bytes | None = None
        for viewer in self._viewers:
            viewer.waiting |= framed
            if new is not None:
                viewer.pieces.append(new)
            if viewer.wants_story or len(viewer.pieces) > MOST_DELTAS:
                whole = whole or as_event(STORY, self._story())
                viewer.waiting[STORY] = whole
                viewer.pieces, viewer.wants_story = [], False
            if viewer.waiting or viewer.pieces:
                viewer.wake.set()

    # --- one viewer -------------------------------------------------------------------------------------------------

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond with the events, until the viewer goes."""
        head: list[tuple[bytes, bytes]] = [(b"content-type", b"text/event-stream; charset=utf-8")]
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": head})
            await send({"type": "http.response.body"})
            return
        if len(self._viewers) >= self._most:
            said = f"{self._most} consoles are open at this member: close one, or open that of another member\n"
            await PlainTextResponse(said, 503, {"retry-after": "10"})(scope, receive, send)
            return
        viewer = _Viewer()
        gone = asyncio.create_task(_until_gone(receive))
        gone.add_done_callback(log_failure)
        self._viewers.add(viewer)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": head})
            await _send(send, b"retry: 1000\n\n" + as_event("hello", self._hello()) + b"".join(self._latest.values()))
            if self._making is None:
                self._making = asyncio.create_task(self._work())
                self._making.add_done_callback(log_failure)
            else:
                self.hurry()
            while not gone.done() and not self._is_over:
                await self._send_next(viewer, gone, send)
            await send({"type": "http.response.body"})
        except TimeoutError:
            pass  # it does not read: what it asked for ends here
        finally:
            self._viewers.discard(viewer)
            gone.cancel()
            if not self._viewers:
                self._latest.clear()  # the next viewer is told nothing of long ago
                self._left += 1

    async def _send_next(self, viewer: _Viewer, gone: asyncio.Task[None], send: Send) -> None:
        woken = asyncio.ensure_future(viewer.wake.wait())
        try:
            await asyncio.wait((woken, gone), timeout=KEEP_ALIVE_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
        if gone.done():
            return
        viewer.wake.clear()
        waiting, pieces = viewer.waiting, viewer.pieces
        viewer.waiting, viewer.pieces = {}, []
        # The whole story stands for all pieces before it.
        await _send(send, b"".join((*waiting.values(), *pieces)) or b": still here\n\n")


async def _send(send: Send, text: bytes) -> None:
    """Send a part of the response. Raises `TimeoutError` if the viewer does not take it."""
    async with asyncio.timeout(SEND_WITHIN_S):
        await send({"type": "http.response.body", "body": text, "more_body": True})


async def _until_gone(receive: Receive) -> None:
    message: Any = {}
    while message.get("type") != "http.disconnect":
        message = await receive()


encoder: Final = msgspec.json.Encoder(enc_hook=str)
