"""What each question of `/api/…` answers: members are asked, and `reports` makes the objects, as for the command line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

from phalanx.common.errors import ClientClosed, UnavailableError, UsageError
from phalanx.common.map_plan import MapPlan
from phalanx.common.table import PartitionTable
from phalanx.http.served_member import Questions, ServedMember
from phalanx.http.what_if import answer_what_if
from phalanx.maps.async_locks import AsyncLock
from phalanx.maps.locks import LOCKS, LockStatus
from phalanx.reports import locks, losses, maps, members, partitions, safety, status, why
from phalanx.reports.entries import KeyType, to_key
from phalanx.reports.story import StorySource
from phalanx.wire.messages import LossesReply

MAPS_AT_ONCE: Final = 200
"""Maps whose settings are told in one turn of the loop: about a millisecond."""

Query = Mapping[str, list[str]]


class Asked:
    """The answers of one member."""

    def __init__(self, member: ServedMember, questions: Questions, cluster: str) -> None:
        self._member, self._questions, self._cluster = member, questions, cluster

    async def status(self) -> dict[str, Any]:
        """Return the whole cluster at one moment."""
        seen, holdings = await self._questions.partitions()
        safeties = await self._questions.safeties(seen.placement.view.members)
        answers: dict[Any, status.MemberAnswer | None] = {}
        for member in seen.placement.view.members:
            held, its = holdings[member], safeties[member]
            answers[member] = status.MemberAnswer(held, its) if held is not None and its is not None else None
        against = status.problems(seen, answers)
        sizes: dict[str, int] = {}
        try:
            if silent := status.silent_owners(seen, answers):
                against.append(status.not_counted(silent))
            elif seen.placement.table.is_assigned and seen.placement.view.data_members:
                names, _ = await self._questions.maps()
                sizes = await self._questions.sizes(names)
        except (ClientClosed, UnavailableError) as error:  # the owner of some partition has just ended
            against.append(status.not_counted(error))
        sizes = dict(sorted(sizes.items(), key=lambda each: (-each[1], each[0])))
        return status.as_object(status.Look(seen, answers, sizes, against))

    async def members(self) -> dict[str, Any]:
        """Return the member list."""
        reply = await self._questions.members()
        lost = await self._questions.losses()
        listed = members.as_object(self._cluster, self._member.id, reply.view, reply.suspected, reply.raise_waits_for)
        wait = {
            "restart_wait": partitions.wait_as_object(reply.restart_wait),
            "awaited": list(map(members.away_as_object, reply.away)),
        }
        return listed | wait | losses.as_objects(lost)

    async def partitions(self) -> dict[str, Any]:
        """Return who holds what."""
        return partitions.as_object(*await self._questions.partitions(), every=False)

    async def every_partition(self) -> dict[str, Any]:
        """Return who holds what, with each partition."""
        return partitions.as_object(*await self._questions.partitions(), every=True)

    async def maps(self) -> dict[str, Any]:
        """Return the maps with entries."""
        names, plan = await self._questions.maps()
        sizes = await self._questions.sizes(names)
        found = []
        for name, size in sizes.items():
            found.append(maps.as_object(name, size, plan))
            if len(found) % MAPS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return {"maps": found}

    async def losses(self) -> dict[str, Any]:
        """Return what was lost."""
        return losses.as_objects(await self._questions.losses())

    async def safety(self) -> dict[str, Any]:
        """Return whether this member can be stopped."""
        found, own = await self._questions.safety()
        return safety.as_object(found, own)

    async def settings(self, query: Query) -> dict[str, Any]:
        """Return the settings of one map, or of all that have settings of their own. Raises `UsageError`."""
        name = _only(query, "map")
        if name == "":
            raise UsageError("the name of the map is empty: for all maps without settings of their own, give '*'")
        plan: MapPlan = (await self._questions.placement()).table.maps
        return {each: maps.settings_as_object(found) for each, found in maps.settings_of(plan, name).items()}

    async def why(self, query: Query) -> dict[str, Any]:
        """Return what happened to a member or a partition. Raises `UnknownSubject`, and `UsageError` if several are meant."""
        subject = _only(query, "subject") or ""
        partition = int(subject) if why.PARTITION.fullmatch(subject) and subject.isascii() else None
        source = await self._questions.histories(-1 if partition is None else partition)
        lost = table = None
        try:
            lost = await self._questions.losses()
            table = (await self._questions.placement()).table
        except (ClientClosed, UnavailableError):
            pass  # this member is in no cluster, and only tells what it remembers
        # Many decisions take long to tell: not in a turn of the member's loop.
        return await asyncio.to_thread(_story, source, subject, partition, lost, table)

    async def what_if(self, query: Query) -> dict[str, Any]:
        """Return who would be kept. Raises `UsageError` if the text is not a cut."""
        return await answer_what_if(await self._questions.placement(), query.get("cut", []))

    async def lock(self, query: Query) -> dict[str, Any]:
        """Return the state of a lock or semaphore. Raises `UsageError` for what cannot be one."""
        name, map_name = _only(query, "name") or "", _only(query, "map")
        kind, permits = _only(query, "key_type") or KeyType.STR.value, _only(query, "permits") or "0"
        if kind not in list(KeyType):
            raise UsageError(f"key_type: {kind!r} is not a type of keys; give one of {', '.join(KeyType)}")
        if not (permits.isascii() and permits.isdecimal() and len(permits) <= 9):
            raise UsageError(f"permits: {permits!r} is not a number")
        found = self._find_lock(to_key(name, KeyType(kind)), map_name, int(permits))
        if not (await self._questions.placement()).table.is_assigned:  # else the question would assign partitions
            return locks.as_object(name, map_name, LockStatus(0, 0, (), (), (), 0))
        return locks.as_object(name, map_name, await found.status())

    def _find_lock(self, key: Any, map_name: str | None, permits: int) -> AsyncLock:
        of = self._member.untraced_map(LOCKS if map_name is None else map_name)
        return of.semaphore(key, permits) if permits else of.lock(key)


def _only(query: Query, name: str) -> str | None:
    return query[name][0] if name in query else None


def _story(
    source: StorySource, subject: str, partition: int | None, lost: LossesReply | None, table: PartitionTable | None
) -> dict[str, Any]:
    now = time.time_ns() // 1_000_000
    times = why.times_of(source, now)
    if partition is not None:
        of_partition = why.story_of_partition(source, partition, table)
        found = why.partition_as_object(of_partition, of_partition.conclusion(times), now)
        count = table.partition_count if table is not None else 1
        only = losses.about_partition(lost.losses, partition, count) if lost is not None else set()
    else:
        of_member = why.story_of_member(source, subject, lost)
        found = why.as_object(of_member, *of_member.conclusion(times), now)
        only = losses.about_members(lost.losses, of_member.subjects) if lost is not None else set()
    return found | (losses.as_objects(lost, only) if lost is not None else {})
