"""Writers: tasks that write, note every outcome, and stop only when the run ends; and one that reads it back."""

from __future__ import annotations

import abc
import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec

from phalanx.client.aio import AsyncClient, connect
from phalanx.common.errors import ConnectError, GridFull, IndeterminateWrite, LockLost, StaleToken, UnavailableError
from phalanx.maps.async_map import AsyncMap
from phalanx_proof.chaos.ledger import (
    COUNTERS,
    LOCKED,
    REGISTERS,
    UNIQUE,
    Ledger,
    LedgerOutcome,
    LedgerToken,
    LedgerWrite,
    Value,
)

PAUSE_S = 0.002
"""Between two writes: this is about who is served, not about how fast."""
REGISTERS_EACH = 50
COUNTERS_IN_ALL = 10
LEASE_S = 2.0
"""Of the locks that writers hold, and how long they wait for one."""
HANGS = 0.02
"""How often a writer does nothing for up to a lease while it holds a lock."""
PADDING = "." * 200
"""At the end of unique values, so that a partition has something to move."""
CALL_TIMEOUTS_S = (30.0, 3.0, 10.0)
"""Of the writers in turn: who waits long is seldom left in doubt, who waits briefly often."""
UNAVAILABLE_BEFORE_RECONNECT = 3
READ_EVERY_S = 0.01
RECENT = 200
"""Of so many keys that were written last the reader takes every other one: what is new is lost first."""


class TaskContext(msgspec.Struct, frozen=True):
    """What a task knows of the run."""

    seed: int
    ledger: Ledger
    addresses: Callable[[], str]
    """Of members that serve now."""
    cluster: str
    now: Callable[[], float]
    """Seconds since the beginning."""
    prefix: str = ""
    """Of the names of the maps."""


class ClientTask(abc.ABC):
    """A task with a client of its own, which is replaced when it finds nobody any more."""

    def __init__(self, around: TaskContext, number: int, call_timeout_s: float) -> None:
        self.reconnected = 0
        """How often the client had to be replaced, because it found nobody any more."""
        self.began_s: float | None = None
        """When the write under way began."""
        self._rng = random.Random(f"phalanx chaos task {around.seed} {number}")
        self._ledger, self._now = around.ledger, around.now
        self._around, self._call_timeout_s = around, call_timeout_s
        self._stopping = False
        self._client: AsyncClient | None = None
        self._unavailable = 0
        """Calls that found nobody, since the last one that was answered."""

    def go_on(self) -> None:
        """Let `run` begin again after `stop`."""
        self._stopping = False

    def stop(self) -> None:
        """Finish the call under way and end."""
        self._stopping = True

    async def run(self) -> None:
        """Go on until told to stop."""
        try:
            while not self._stopping:
                try:
                    await self._step(self._client or await self._connected())
                except ConnectError:
                    await asyncio.sleep(0.1)
                if self._unavailable >= UNAVAILABLE_BEFORE_RECONNECT:
                    self.reconnected += 1
                    await self._close()
        finally:
            await self._close()

    @abc.abstractmethod
    async def _step(self, client: AsyncClient) -> None:
        """Make one call, and pause."""

    def _map(self, client: AsyncClient, name: str) -> AsyncMap[Any, Any]:
        return client.map(f"{self._around.prefix}{name}")

    async def _connected(self) -> AsyncClient:
        around = self._around
        self._client = await connect(around.addresses(), cluster=around.cluster, call_timeout_s=self._call_timeout_s)
        self._unavailable = 0
        return self._client

    async def _close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()


class ReaderTask(ClientTask):
    """Reads keys whose write was acknowledged, and notes when one is not found: to know when it was lost."""

    def __init__(self, around: TaskContext) -> None:
        super().__init__(around, -1, CALL_TIMEOUTS_S[0])
        self.reads = 0

    async def _step(self, client: AsyncClient) -> None:
        await asyncio.sleep(READ_EVERY_S)
        certain = self._ledger.certain
        if not certain:
            return
        newest = len(certain) - 1
        oldest = max(newest - RECENT, 0) if self._rng.random() < 0.5 else 0
        key = certain[self._rng.randint(oldest, newest)]
        began_s = self._now()
        try:
            value = await self._map(client, UNIQUE).get(key)
        except UnavailableError:
            self._unavailable += 1
            return
        self._unavailable = 0
        self.reads += 1
        if value is None:
            self._ledger.missed_s.setdefault(key, began_s)


class WriterTask(ClientTask):
    """One writer."""

    def __init__(self, around: TaskContext, number: int) -> None:
        super().__init__(around, number, CALL_TIMEOUTS_S[number % len(CALL_TIMEOUTS_S)])
        self.number = number
        self._written = 0

    async def _step(self, client: AsyncClient) -> None:
        await asyncio.sleep(PAUSE_S)
        self._written += 1
        drawn = self._rng.random()
        if drawn < 0.25:
            key = f"{self.number}-{self._written}"
            await self._put(client, UNIQUE, key, f"{key} {PADDING}")
        elif drawn < 0.35:
            key = f"{self.number}-{self._written}"
            await self._put_if_absent(client, key, f"{key} {PADDING}")
        elif drawn < 0.65:
            await self._put(client, REGISTERS, self._own_register(), self._written)
        elif drawn < 0.7:
            await self._remove(client, self._own_register())
        elif drawn < 0.8:
            await self._increment(client, f"counter-{self._rng.randrange(COUNTERS_IN_ALL)}")
        elif drawn < 0.93:
            await self._raise_locked(client, f"locked-{self._rng.randrange(COUNTERS_IN_ALL)}")
        else:
            await self._count(client, f"counter-{self._rng.randrange(COUNTERS_IN_ALL)}")

    def _own_register(self) -> str:
        return f"{self.number}-register-{self._rng.randrange(REGISTERS_EACH)}"

    async def _put(self, client: AsyncClient, name: str, key: str, value: Value) -> None:
        async def write() -> bool:
            await self._map(client, name).put(key, value)
            return True

        await self._write(name, key, value, write)

    async def _put_if_absent(self, client: AsyncClient, key: str, value: Value) -> None:
        async def write() -> bool:
            return await self._map(client, UNIQUE).put_if_absent(key, value) is None

        await self._write(UNIQUE, key, value, write)

    async def _remove(self, client: AsyncClient, key: str) -> None:
        async def write() -> bool:
            await self._map(client, REGISTERS).remove(key)
            return True

        await self._write(REGISTERS, key, None, write)

    async def _count(self, client: AsyncClient, key: str) -> None:
        """Raise a counter where it is."""
        raised_to: Value = None

        async def write() -> bool:
            nonlocal raised_to
            raised_to = await self._map(client, COUNTERS).increment(key)
            return True

        await self._write(COUNTERS, key, lambda: raised_to, write)

    async def _increment(self, client: AsyncClient, key: str) -> None:
        """Read a counter, and raise it by compare-and-set."""
        counters = self._map(client, COUNTERS)
        self.began_s = self._now()
        try:
            number = await counters.get(key)
        except UnavailableError:
            self._unavailable += 1
            return
        finally:
            self.began_s = None

        async def write() -> bool:
            if number is None:
                return await counters.put_if_absent(key, 1) is None
            return await counters.compare_and_set(key, number, number + 1)

        await self._write(COUNTERS, key, (number or 0) + 1, write)

    async def _raise_locked(self, client: AsyncClient, key: str) -> None:
        """Read a number and put the next one, while holding the lock of its key."""
        numbers = self._map(client, LOCKED)
        lock = numbers.lock(key, lease=LEASE_S, wait=LEASE_S)
        began_s = self._now()
        try:
            if not await lock.acquire():
                return
            self._ledger.tokens.setdefault(key, []).append(LedgerToken(lock.token, began_s, self._now()))
        except (UnavailableError, GridFull):
            self._unavailable += 1
            return
        try:
            number = (await numbers.get(key) or 0) + 1
            if self._rng.random() < HANGS:
                await asyncio.sleep(LEASE_S * self._rng.random())
            token = lock.token

            async def write() -> bool:
                await numbers.put(key, number, fence=token)
                return True

            await self._write(LOCKED, key, number, write)
        except UnavailableError:
            self._unavailable += 1
        finally:
            # It is lost where no owner could be asked for as long as the lease, and freed by its owner in that time.
            with suppress(LockLost, UnavailableError, IndeterminateWrite):
                await lock.release()

    async def _write(
        self, name: str, key: str, value: Value | Callable[[], Value], write: Callable[[], Awaitable[bool]]
    ) -> None:
        """Make a write and note its outcome. `value`: what is written, or a function that returns it once it is known."""
        began_s = self.began_s = self._now()
        outcome = LedgerOutcome.INDETERMINATE  # also if this task is cancelled
        try:
            outcome = LedgerOutcome.ACKNOWLEDGED if await write() else LedgerOutcome.REFUSED
            self._unavailable = 0
        except IndeterminateWrite:
            pass
        except StaleToken:
            outcome = LedgerOutcome.REFUSED
        except (UnavailableError, GridFull):
            outcome = LedgerOutcome.FAILED
            self._unavailable += 1
        finally:
            self.began_s = None
            written = value() if callable(value) else value
            self._ledger.note(name, key, LedgerWrite(self.number, written, outcome, began_s, self._now()))
