"""Rounds in which disks have faults while writers go on, and what an operator does then.

The other members go on, so what was answered is there all the time, whatever the disk has lost. What must hold here: a member whose disk
fails ends by itself, with a status that says so, when others hold all that it had; where they cannot, it stays. It starts with that folder
again only after an operator has said so.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from phalanx.client.aio import AsyncClient, connect
from phalanx.common.errors import GridFull, IndeterminateWrite, UnavailableError
from phalanx.runtime.disk.disk_thread import DISK_FAILED_STATUS
from phalanx_proof.chaos.cluster import LOOK_EVERY_S, WHOLE_WITHIN_S, NotWhole
from phalanx_proof.chaos.durable.cluster import INTERVAL, DurableCluster
from phalanx_proof.chaos.durable.disk_faults import FAILS, FULL, HANGS, SLOW, UNREADABLE
from phalanx_proof.chaos.durable.plan import DurableOptions, RestartKind, RestartRound

REFUSED_STATUS = 2
"""With which a process ends whose folder is refused."""
FAILED = "writes to no file there any more"
"""What the log of a member says when its disk has failed."""
PROBES = f"{INTERVAL}probes"
"""A map of keys that are written here, and removed at once."""
PROBE_KEYS = 64
"""So many that some are of partitions of each member."""
LOSES = 0.5
"""How often a disk that had a fault has lost what was not synced."""
STAYS_S = 2.0
"""How long a member whose disk has failed serves before an operator stops it."""


class DiskRounds:
    """Plays them."""

    def __init__(self, cluster: DurableCluster, options: DurableOptions, rng: random.Random) -> None:
        self.lost_disks = 0
        """Processes that have ended because their disk had failed."""
        self._cluster = cluster
        self._options = options
        self._rng = rng

    def slow_down(self) -> None:
        """Let all disks be slow, until they lose power."""
        for place in range(self._options.members):
            self._cluster.put_fault(place, SLOW)

    async def play(self, planned: RestartRound) -> None:
        """Play a round until all members are started again. Raises `NotWhole` if something does not come in time."""
        plays: dict[RestartKind, Callable[[RestartRound], Awaitable[None]]] = {
            RestartKind.DISK_FAILS: self._fail,
            RestartKind.DISK_HANGS: self._fail,
            RestartKind.DISK_FULL: self._fill,
            RestartKind.DISK_UNREADABLE: self._make_unreadable,
            RestartKind.DISK_ALL: self._fail_all,
        }
        await plays[planned.kind](planned)
        await self._cluster.wait_started()

    async def _fail(self, planned: RestartRound) -> None:
        place = planned.order[0]
        hangs = planned.kind is RestartKind.DISK_HANGS
        self._cluster.put_fault(place, (HANGS if hangs else FAILS)[planned.call])
        if hangs and planned.call == "write":  # it holds the event loop: nobody can hand over anything
            await self._wait_ended(place)
        else:
            await self._wait_gone(place, others=self._options.members - 1)
        await asyncio.sleep(planned.down_s)
        if self._rng.random() < LOSES:
            self._cluster.lose_unsynced([place], self._rng)
        await self._start_again(place, is_replaced=planned.is_replaced)

    async def _make_unreadable(self, planned: RestartRound) -> None:
        place = planned.order[0]
        await self._cluster.kill_at([place])
        self._cluster.put_fault(place, UNREADABLE)
        await asyncio.sleep(planned.down_s)
        await self._cluster.start_all([place], 0)
        status = await self._cluster.wait_status(place)
        if status != REFUSED_STATUS:
            self._problem(place, f"ended with status {status}, although its disk does not give back its log")
        await self._start_again(place, is_replaced=planned.is_replaced)

    async def _fill(self, planned: RestartRound) -> None:
        cluster, place = self._cluster, planned.order[0]
        async with connect(cluster.addresses(), cluster=cluster.name) as client:
            probes = client.map(PROBES)
            await probes.put("here", 1)
            self._cluster.put_fault(place, FULL)

            async def is_refused() -> bool:
                for number in range(PROBE_KEYS):
                    try:
                        await probes.put(f"probe {number}", number)
                    except GridFull:
                        return True
                    await probes.remove(f"probe {number}")
                return False

            await self._wait(is_refused, "growth is refused, because a disk is full")
            if await probes.get("here") != 1:
                self._problem(place, "has a full disk, and a read found nothing")
            await probes.remove("here")  # makes room, so nobody refuses it
            self._cluster.end_fault(place)
            await self._wait(lambda: _is_not(is_refused), "growth is accepted, because there is room again")
            await _remove_all(client)

    async def _fail_all(self, planned: RestartRound) -> None:
        cluster = self._cluster
        async with connect(cluster.addresses(), cluster=cluster.name) as client:
            await client.map(PROBES).put("here", 1)
        places, staying = planned.order, list[int]()
        for number, place in enumerate(places, 1):
            self._cluster.put_fault(place, FAILS["every call"])
            working = len(places) - number
            if working > self._options.backups:
                await self._wait_ended(place)
            else:
                await self._wait_failed(place)
                staying.append(place)
        await self._check_reads_only(staying)
        for place in places:
            if place not in staying:
                await self._start_again(place, is_replaced=True)
        await self._cluster.wait_started()
        for number, place in enumerate(staying):
            await self._wait_gone(place, others=len(places) - len(staying) + number)
            await self._start_again(place, is_replaced=True)
            await self._cluster.wait_started()
        async with connect(cluster.addresses(), cluster=cluster.name) as client:
            await self._wait(lambda: _remove_all(client), "writes are accepted, because disks work again")

    async def _check_reads_only(self, staying: list[int]) -> None:
        """Check what the last members answer, of which no disk works."""
        async with connect(self._cluster.addresses(), cluster=self._cluster.name, call_timeout_s=STAYS_S) as client:
            await self._wait(lambda: _finds(client, "here"), "the last members answer reads")
            for number in range(PROBE_KEYS):
                try:
                    await client.map(PROBES).put(f"probe {number}", number)
                except (UnavailableError, IndeterminateWrite):
                    continue
                self._problem(staying[-1], "has acknowledged a write, and no member has a disk that works")
                return

    # --- what a member does ------------------------------------------------------------------------------------------

    async def _wait_gone(self, place: int, others: int) -> None:
        """Wait until a member whose disk fails has ended, by itself if others are enough for all replicas, else because it is stopped."""
        if others > self._options.backups:
            await self._wait_ended(place)
            return
        await self._wait_failed(place)
        await asyncio.sleep(STAYS_S)
        if self._cluster.is_running(place):
            await self._cluster.stop_at([place], in_turn=False)
        else:
            self._problem(place, "has not stayed, although others are too few for all replicas")
            await self._wait_ended(place)

    async def _wait_failed(self, place: int) -> None:
        async def has_failed() -> bool:
            return self._cluster.has_logged(place, FAILED)

        await self._wait(has_failed, f"the disk of m{place} has failed")

    async def _wait_ended(self, place: int) -> None:
        status = await self._cluster.wait_status(place)
        self.lost_disks += 1
        if status != DISK_FAILED_STATUS:
            self._problem(place, f"ended with status {status}, although its disk has failed")

    def _problem(self, place: int, what: str) -> None:
        self._cluster.problems.append(f"m{place} {what}")

    # --- what an operator does ---------------------------------------------------------------------------------------

    async def _start_again(self, place: int, *, is_replaced: bool) -> None:
        """Start a member whose disk had a fault: with an empty folder, or with its folder, which perhaps has to be repaired first."""
        cluster = self._cluster
        cluster.end_fault(place)
        if is_replaced:
            cluster.replace_disk(place)
            await cluster.forget(place)
        elif cluster.is_said_to_have_failed(place):
            await cluster.start_all([place], 0)
            status = await cluster.wait_status(place)
            if status != REFUSED_STATUS:
                self._problem(place, f"ended with status {status}, although its folder says that its disk has failed")
            await cluster.repair(place)
        await cluster.start_all([place], 0)

    async def _wait(self, is_so: Callable[[], Awaitable[bool]], what: str) -> None:
        deadline = time.monotonic() + WHOLE_WITHIN_S
        while True:
            try:
                if await is_so():
                    return
            except UnavailableError:
                pass
            if time.monotonic() > deadline:
                raise NotWhole(f"not within {WHOLE_WITHIN_S:g} s: {what}")
            await asyncio.sleep(LOOK_EVERY_S)


async def _is_not(is_so: Callable[[], Awaitable[bool]]) -> bool:
    return not await is_so()


async def _finds(client: AsyncClient, key: str) -> bool:
    return await client.map(PROBES).get(key) is not None


async def _remove_all(client: AsyncClient) -> bool:
    """Remove all probes, also those that a call has left which was told that it perhaps has."""
    probes = client.map(PROBES)
    for key in ("here", *(f"probe {number}" for number in range(PROBE_KEYS))):
        await probes.remove(key)
    return True
