"""Read everything back, as a client and as somebody who counts replicas."""

from __future__ import annotations

import asyncio
import time

from phalanx.client.aio import AsyncClient
from phalanx.common.words import counted
from phalanx_proof.chaos.checks import ChaosViolation, ChecksFound
from phalanx_proof.chaos.cluster import LOOK_EVERY_S, ChaosCluster
from phalanx_proof.chaos.ledger import Ledger, Value

AT_REST_WITHIN_S = 60.0
READ_AT_ONCE = 1_000


async def read_maps(client: AsyncClient, ledger: Ledger, prefix: str = "") -> dict[str, ChecksFound]:
    """Read all maps of a ledger in all ways that there are. `prefix`: of their names. Raises `UnavailableError`."""
    found = {}
    for name, keys in ledger.maps.items():
        entries = client.map(f"{prefix}{name}")
        scanned: list[tuple[str, Value]] = [(key, value) async for key, value in entries.items()]
        looked_up: dict[str, Value] = {}
        wanted = list(keys)
        for start in range(0, len(wanted), READ_AT_ONCE):
            looked_up |= await entries.get_all(wanted[start : start + READ_AT_ONCE])
        found[name] = ChecksFound(scanned, looked_up, await entries.size())
    return found


async def check_replicas(cluster: ChaosCluster, entries: int, backups: int) -> list[ChaosViolation]:
    """Check that members hold each entry as often as there are replicas: no copy is missing, and none is left where it was."""
    deadline = time.monotonic() + AT_REST_WITHIN_S
    while True:
        held = await asyncio.to_thread(cluster.holdings)
        expected = entries * min(backups + 1, len(held))
        found = sum(each.entries for each in held.values())
        if found == expected:
            return []
        if time.monotonic() > deadline:
            by_member = ", ".join(f"{name} {each.entries}" for name, each in held.items())
            return [
                ChaosViolation(
                    f"the members hold {counted(found, 'entry', 'entries')} ({by_member}), but {entries} keys with all replicas are {expected}"
                )
            ]
        await asyncio.sleep(LOOK_EVERY_S)
