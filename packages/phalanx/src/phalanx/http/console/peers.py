"""The latest answers of each member of the cluster, which the console asks once a round.

A round waits a moment for the answers and continues with those that arrived: a member that hangs or has died delays no viewer. A
member is asked again only when its last question has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from phalanx.common.errors import UnavailableError
from phalanx.common.ids import MemberId
from phalanx.http.console.cluster_activity import ClusterActivity
from phalanx.http.served_member import Questions
from phalanx.http.shared_answer import log_failure
from phalanx.wire.messages import ActivityReply, HistoryReply, MigrationsReply, ReplicasReply, SafetyReply

ROUND_WAITS_S: Final = 0.25
HOLDINGS_EVERY_S: Final = 5.0
"""What members hold is counted over all their maps."""
ACTIVITY_EVERY_S: Final = 1.5
"""Members have a new point of their activity every three seconds."""
MOST_A_SECOND: Final = 40
"""So many members are asked in a second; in larger clusters each comes less often."""


class PeerAnswers:
    """The last answers of one member."""

    __slots__ = ("activity", "activity_at", "answers", "asked_at", "held_at", "holdings", "safety", "silent_since")

    def __init__(self) -> None:
        self.safety: SafetyReply | None = None
        self.holdings: ReplicasReply | None = None
        self.activity: ActivityReply | None = None
        self.answers: bool | None = None
        """None: it was not asked yet."""
        self.silent_since = 0.0
        """Since when it does not answer, in seconds since 1970."""
        self.asked_at = self.held_at = self.activity_at = 0.0


class Peers:
    """Asks the members, and remembers."""

    def __init__(self, questions: Questions, activity: ClusterActivity) -> None:
        """`activity`: is given what members tell that they did."""
        self._questions, self._activity = questions, activity
        self.answers: dict[MemberId, PeerAnswers] = {}
        self.migrations: MigrationsReply | None = None
        self._under_way: dict[tuple[str, MemberId], asyncio.Task[None]] = {}

    def end(self) -> None:
        for task in self._under_way.values():
            task.cancel()

    async def ask(self, members: tuple[MemberId, ...], master: MemberId) -> None:
        """Ask all, and wait for a moment. What comes later is there in the next round."""
        now = time.monotonic()
        has_changed = self.answers.keys() != set(members)
        self.answers = {member: self.answers.get(member) or PeerAnswers() for member in members}
        pause_s = len(members) / MOST_A_SECOND
        for member, peer in self.answers.items():
            if has_changed:  # others hold what a member held that has gone
                peer.held_at = 0.0
            if now - peer.asked_at >= pause_s:
                peer.asked_at = now
                self._begin("safety", member, self._ask_safety(member, peer))
            if now - peer.held_at >= max(HOLDINGS_EVERY_S, pause_s):
                peer.held_at = now
                self._begin("holdings", member, self._ask_holdings(member, peer))
            if now - peer.activity_at >= max(ACTIVITY_EVERY_S, pause_s):
                peer.activity_at = now
                self._begin("activity", member, self._ask_activity(member, peer))
        self._begin("migrations", master, self._ask_migrations(master))
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=ROUND_WAITS_S)

    async def ask_histories(
        self, members: tuple[MemberId, ...], take: Callable[[MemberId, HistoryReply], None]
    ) -> None:
        """Ask members what they have decided; `take` is called with each answer, also after this has returned."""

        async def ask(member: MemberId) -> None:
            with contextlib.suppress(UnavailableError):  # what it decided is told when it answers again, or never
                take(member, await self._questions.history(member))

        for member in members:
            self._begin("history", member, ask(member))
        asked = [task for (what, _), task in self._under_way.items() if what == "history"]
        if asked:
            await asyncio.wait(asked, timeout=ROUND_WAITS_S)

    def _begin(self, what: str, member: MemberId, work: Coroutine[Any, Any, None]) -> None:
        key = what, member
        if key in self._under_way:
            work.close()
            return
        task = self._under_way[key] = asyncio.create_task(work)

        def on_end(done: asyncio.Task[None]) -> None:
            self._under_way.pop(key, None)
            log_failure(done)

        task.add_done_callback(on_end)

    async def _ask_safety(self, member: MemberId, peer: PeerAnswers) -> None:
        try:
            peer.safety = await self._questions.safety_of(member)
            peer.answers, peer.silent_since = True, 0.0
        except UnavailableError:
            peer.answers, peer.silent_since = False, peer.silent_since or time.time()

    async def _ask_holdings(self, member: MemberId, peer: PeerAnswers) -> None:
        try:
            peer.holdings = await self._questions.holdings_of(member)
        except UnavailableError:
            peer.holdings = None

    async def _ask_activity(self, member: MemberId, peer: PeerAnswers) -> None:
        try:
            peer.activity = await self._questions.activity_of(member, self._activity.missing(member))
        except UnavailableError:
            peer.activity = None
        else:
            self._activity.take(member, peer.activity)

    async def _ask_migrations(self, master: MemberId) -> None:
        self.migrations = await self._questions.migrations(master)
