"""A large answer: what a scan of a map finds, written page by page as the client reads.

It is one message, so until it has ended other answers of the connection wait, and no other request is begun.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from phalanx.maps.call_plans import CallPlan
from phalanx.maps.scanning import Scan
from phalanx.wire.messages import PageReply
from phalanx_protocols.hazelcast.frames import BEGIN_FRAME, LAST_END_FRAME, answer_head
from phalanx_protocols.hazelcast.under_way import result_or_error


class BrokenOff(Exception):
    """A large answer that has begun cannot be ended: a message that has begun has no place for an error."""


class LargeAnswer:
    """A large answer that is being written."""

    def __init__(self, kind: int, number: int, tell: Callable[[PageReply], bytes]) -> None:
        """`tell`: makes of a page what is written of it."""
        self.kind, self.number, self._tell = kind, number, tell
        self.waiting: list[bytes] = []
        """Answers that are written behind it."""
        self.is_asking = True
        """Whether a page is asked for; else the client must read first."""
        self.has_ended = False
        self._scan: Scan[PageReply] | None = None
        self._has_begun = False

    def begin(self, scan: Scan[PageReply]) -> None:
        """Answer with what this scan finds."""
        self._scan = scan

    def next_pages(self) -> CallPlan[Any] | None:
        """Return the plan that asks for the next pages; None: the scan was not begun."""
        if self._scan is None:
            return None
        self.is_asking = True
        return result_or_error(self._scan.next_pages())

    def take(self, pages: Any) -> bytes:
        """Return what is to be written of these pages: a list; None: there are no more; or the error of the scan.

        Raises `BrokenOff`, or the error itself if it comes before the first page.
        """
        try:
            made = self._made_of(pages)
        except Exception as error:
            if self._has_begun:
                raise BrokenOff(f"a large answer could not be ended: {error}") from error
            raise
        begun = b"" if self._has_begun else answer_head(self.kind + 1, self.number, is_last=False) + BEGIN_FRAME
        self._has_begun, self.is_asking, self.has_ended = True, False, pages is None
        return begun + made

    def _made_of(self, pages: Any) -> bytes:
        if isinstance(pages, Exception):
            raise pages
        return LAST_END_FRAME if pages is None else b"".join(map(self._tell, pages))
