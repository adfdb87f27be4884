"""What the HTTP port needs of its member, and the questions that it asks of it and of others."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar

from phalanx.common.errors import UnavailableError
from phalanx.common.ids import Address, MemberId, Millis, Target, address_of
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import MapChange
from phalanx.common.restart_wait import wait_in_words
from phalanx.http.durations import Durations
from phalanx.maps.async_map import AsyncMap
from phalanx.node.node import Node
from phalanx.reports.partitions import Holdings, Seen
from phalanx.reports.placement import Placement, placement_of
from phalanx.reports.safety import Judgement, MasterSays, judge
from phalanx.reports.story import StorySource
from phalanx.reports.why import put_together
from phalanx.wire.figures import DiskStatus
from phalanx.wire.messages import (
    ActivityReply,
    ChangeMap,
    DoneReply,
    ErrorReply,
    GetActivity,
    GetHistory,
    GetLosses,
    GetMapNames,
    GetMembers,
    GetMigrations,
    GetReplicas,
    GetSafety,
    GetTable,
    HistoryReply,
    LossesReply,
    MembersReply,
    MigrationsReply,
    NamesReply,
    ReplicasReply,
    SafetyReply,
    TableReply,
)

ASK_WITHIN_MS: Millis = 2_000
"""A member that does not answer a question by then does not answer."""

ASKED_AT_ONCE = 16
"""Members that are asked for their decisions at once: each answer can have some MiB."""

R = TypeVar("R")


class DiskSource(Protocol):
    """The disk of a member (`runtime.disk.member_disk`)."""

    syncs: Durations
    copies: int

    @property
    def blocks(self) -> int: ...
    @property
    def appended_bytes(self) -> int: ...
    def report(self) -> DiskStatus | None: ...


class ServedMember(Protocol):
    """The member whose port this is."""

    node: Node

    @property
    def disk(self) -> DiskSource | None:
        """Its disk; None: it has no folder."""

    @property
    def id(self) -> MemberId: ...
    @property
    def address(self) -> Address: ...
    @property
    def is_over(self) -> bool:
        """Whether it has stopped, or failed."""

    @property
    def has_started(self) -> bool:
        """Whether it has joined, and the cluster has had the members that it waits for."""

    @property
    def not_begun(self) -> str:
        """Why it is nothing yet that can be asked: it has no node; empty: it can be."""

    @property
    def is_leaving(self) -> bool:
        """Whether it was asked to leave."""

    @property
    def event_log_problem(self) -> str:
        """Why its event log cannot be written now; empty: it can, or there is none."""

    def untraced_map(self, name: str) -> AsyncMap[Any, Any]:
        """Return the map of that name. Calls on it are not the program's, and no spans (`maps.traced_maps`)."""

    def now(self) -> Millis: ...


class Ask(Protocol):
    """Sends requests for the port."""

    def __call__(self, to: Target, make: Any, *fields: Any, within_ms: Millis) -> asyncio.Future[Any]:
        """Send a request, made of an id and these fields, to this member or another; the result is the reply."""


def why_not_ready(member: ServedMember) -> list[str]:
    """Return why callers should not be sent to this member."""
    if member.not_begun:
        return [member.not_begun]
    against = []
    if member.is_over:
        against.append("this member has ended")
    elif member.node.membership.view is None:
        against.append("it has not joined a cluster yet")
    elif (wait := member.node.installed_table.restart_wait) is not None:
        against.append(wait_in_words(wait))
    elif not member.has_started:
        against.append("the cluster waits for more members before it begins")
    elif not member.node.serves(member.now()):
        against.append("it does not know whether it is still a member: it was paused, or hears nobody")
    if member.is_leaving and (missing := member.node.coordinator.draining.waits_for()):
        names = ", ".join(map(address_of, missing))
        against.append(f"it is leaving, and waits for {names}, or another member, to take over what only it holds")
    elif member.is_leaving:
        against.append("it is leaving")
    return against


class Questions:
    """Asks a member and its peers, without a connection of its own. Each answer comes within `ASK_WITHIN_MS`."""

    def __init__(self, member: ServedMember, ask: Ask) -> None:
        self.member = member
        self._send = ask

    async def _ask(self, to: Target, kind: type[R], make: Any, *fields: Any) -> R:
        """Return the answer. Raises `UnavailableError` if there is none."""
        try:
            async with asyncio.timeout(2 * ASK_WITHIN_MS / 1000):  # its own limit ends it; this one if the member hangs
                reply = await self._send(to, make, *fields, within_ms=ASK_WITHIN_MS)
        except TimeoutError:
            reply = None
        if not isinstance(reply, kind):
            text = reply.text if isinstance(reply, ErrorReply) else "it does not answer"
            raise UnavailableError(f"{address_of(MemberId(to))}: {text}")
        return reply

    async def _ask_others(self, members: Iterable[MemberId], kind: type[R], make: Any) -> Mapping[MemberId, R | None]:
        """Ask all at once; None: no answer."""
        asked = list(members)
        replies = await asyncio.gather(*(self._ask(each, kind, make) for each in asked), return_exceptions=True)
        return {each: reply if isinstance(reply, kind) else None for each, reply in zip(asked, replies, strict=True)}

    async def members(self) -> MembersReply:
        """Return the member list. Raises `UnavailableError`, as all questions do, if this member is in no cluster."""
        return await self._ask(self.member.id, MembersReply, GetMembers)

    async def losses(self) -> LossesReply:
        """Return what the cluster has lost and nobody has acknowledged."""
        return await self._ask(self.member.id, LossesReply, GetLosses)

    async def migrations(self, master: MemberId) -> MigrationsReply | None:
        """Return what the master moves; None: it does not answer, or is none."""
        reply = (await self._ask_others((master,), MigrationsReply, GetMigrations))[master]
        return reply if reply is not None and reply.is_master else None

    async def own_safety(self) -> SafetyReply:
        """Return what this member holds, and what is under way, as far as it knows itself."""
        return await self._ask(self.member.id, SafetyReply, GetSafety)

    async def safety_of(self, member: MemberId) -> SafetyReply:
        """Return what a member holds, and what is under way, as far as it knows itself."""
        return await self._ask(member, SafetyReply, GetSafety)

    async def holdings_of(self, member: MemberId) -> ReplicasReply:
        """Return how much a member holds."""
        return await self._ask(member, ReplicasReply, GetReplicas)

    async def history(self, member: MemberId, partition: int = -1) -> HistoryReply:
        """Return the decisions that a member remembers; `partition`: those about one partition."""
        return await self._ask(member, HistoryReply, GetHistory, partition)

    async def activity_of(self, member: MemberId, most: int) -> ActivityReply:
        """Return what a member did lately, with this many of its last points."""
        return await self._ask(member, ActivityReply, GetActivity, most)

    async def change_map(self, master: MemberId, name: str, change: MapChange) -> None:
        """Let the master change the settings of a map; an empty name: of all maps without own settings."""
        await self._ask(master, DoneReply, ChangeMap, name, change)

    async def safety(self) -> tuple[Judgement, SafetyReply]:
        """Return whether this member can be stopped now, and why not."""
        this = self.member.id
        own = await self.own_safety()
        master = own.view.master
        migrations = (await self._ask_others((master,), MigrationsReply, GetMigrations))[master]
        safety = own if master == this else (await self._ask_others((master,), SafetyReply, GetSafety))[master]
        says = None if migrations is None or safety is None else MasterSays(master, migrations, safety)
        return judge(this, own, says), own

    async def safeties(self, members: Iterable[MemberId]) -> Mapping[MemberId, SafetyReply | None]:
        """Return what each of these members says of itself; None: it does not answer."""
        return await self._ask_others(members, SafetyReply, GetSafety)

    async def placement(self) -> Placement:
        """Return the members and their replicas, by the list and the table that this member has installed."""
        return placement_of(await self._ask(self.member.id, TableReply, GetTable, False))

    async def histories(self, partition: int = -1) -> StorySource:
        """Return what all members remember, oldest first; `partition`: only about that one."""
        replies: dict[MemberId, tuple[HistoryReply, int] | None] = {}

        async def ask(member: MemberId) -> None:
            with contextlib.suppress(UnavailableError):
                replies[member] = await self._ask(member, HistoryReply, GetHistory, partition), _now()

        own = await self._ask(self.member.id, HistoryReply, GetHistory, partition)
        replies[self.member.id] = own, _now()
        others = [each for each in (own.view.members if own.view is not None else ()) if each != self.member.id]
        replies |= dict.fromkeys(others)
        for first in range(0, len(others), ASKED_AT_ONCE):
            await asyncio.gather(*map(ask, others[first : first + ASKED_AT_ONCE]))
        return await asyncio.to_thread(put_together, replies)

    async def partitions(self) -> tuple[Seen, Holdings]:
        """Return one look at the partitions, and what each member says that it holds."""
        placement = await self.placement()
        migrations, losses, holdings = await asyncio.gather(
            self.migrations(placement.view.master),
            self.losses(),
            self._ask_others(placement.view.members, ReplicasReply, GetReplicas),
        )
        wait = self.member.node.installed_table.restart_wait
        return Seen(placement, migrations, losses, wait), dict(holdings)

    async def maps(self) -> tuple[list[str], MapPlan]:
        """Return the names of the maps with entries, in order, and the settings of all maps."""
        table = await self._ask(self.member.id, TableReply, GetTable, False)
        replies = await self._ask_others(table.view.members, NamesReply, GetMapNames)
        names = {name for reply in replies.values() if reply is not None for name in reply.names}
        return sorted(names), table.table.maps

    async def sizes(self, names: Iterable[str]) -> dict[str, int]:
        """Return how many entries each of these maps has. Raises `UnavailableError` if the owner of some partition does not answer."""
        found = {}
        for name in names:
            found[name] = await self.member.untraced_map(name).size()
            await asyncio.sleep(0)  # where this member owns all partitions, nothing is waited for
        return found


def _now() -> int:
    return time.time_ns() // 1_000_000
