"""Clusters of members with folders, in which partitions wait for members that are away."""

from __future__ import annotations

from typing import Any

from phalanx.wire import messages as m
from support.harness import Cluster

VALUE, LATER = b"\0\0\0\0value", b"\0\0\0\0later"


def filled(names: str, *rows: str, **settings: Any) -> Cluster:
    """Each partition has one entry. Seeds that are no members cannot be reached."""
    settings = {"seeds": names[0]} | settings
    c = Cluster(has_folders=True, partition_count=len(rows), **settings)
    c.cuts |= {frozenset((name, seed)) for name in names for seed in settings["seeds"] if seed not in names}
    for name in names:
        c.start(name)
        c.advance(1_500)
    c.assign(rows=rows)
    for partition, row in enumerate(rows):
        write(c, row[0], partition, VALUE)
    return c


def write(c: Cluster, owner: str, partition: int, value: bytes) -> None:
    put = c.put(owner, c.key(partition), value)
    c.advance(500)
    assert c.is_done(put)


def crash(c: Cluster, names: str) -> None:
    """They are removed."""
    c.crash(names)
    c.advance(12_000)


def back(c: Cluster, name: str) -> None:
    c.join(name, seeds="".join(c.nodes) or "A")
    c.advance(3_000)


def owner_of(c: Cluster, partition: int) -> str:
    owner = c.replicas(next(iter(c.nodes)), partition)[:1]
    assert owner, f"partition {partition} has no owner"
    return owner


def read(c: Cluster, partition: int) -> bytes | None:
    return c.get(owner_of(c, partition), c.key(partition))


def dormant(c: Cluster, name: str) -> dict[int, str]:
    table = c.table(name).dormant
    return {p: "".join(each[0] if each is not None else "-" for each in slots) for p, slots in table.items()}


def give_up(c: Cluster, name: str, holders: str, begin_empty: int) -> str:
    """What the master says against it; empty: it is done."""
    addresses = [f"{each}:5701" for each in holders]
    asked = c.ask(name, m.GiveUpHolders, addresses, begin_empty, "ann")
    c.advance(1_000)
    reply = c.replies[asked]
    return reply.text if isinstance(reply, m.ErrorReply) else ""
