"""A Redis client's connection on partitions that are all here, for `./run bench compiled`: in native code and in Python."""

from __future__ import annotations

from typing import Any

from benchmarks.plan import MAP, make_key, make_value
from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_data
from phalanx.common.clock import STAMP_BYTES
from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId
from phalanx.common.view import MembersView
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.node.local_access import LocalAccess
from phalanx.node.node import Node
from phalanx_protocols.resp.framing import command
from phalanx_protocols.resp.server import RespServer

NOW = 1_000


class GridHere:
    """What a machine uses of a member, where every key is here and nobody has to know of a write (`endpoints.protocol.GridAccess`)."""

    call_timeout_s = 30.0
    max_frame_bytes = max_answer_bytes = 64 * 1024 * 1024
    open_from = 0
    member = MemberId("a:1/1")
    view: MembersView | None = None
    table = None

    def __init__(self, owned: list[OwnedPartition | None]) -> None:
        self.partition_count = len(owned)
        self.local = LocalAccess(lambda: NOW, lambda: len(owned), node=member_of(owned))

    def next_id(self) -> int:
        return 1

    def clock_s(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return NOW

    def draw(self, below: int) -> int:
        return 0

    def failed(self, what: str, error: Exception) -> None:
        raise error


def member_of(owned: list[OwnedPartition | None]) -> Node:
    """Return a member that owns these partitions."""
    node = Node(MemberId("a:1/1"), NodeConfig(partition_count=len(owned)))
    node.grid.ownership.owned = owned
    return node


def make_pipelines(owned: list[OwnedPartition | None], count: int) -> dict[str, Any]:
    """Return calls that each carry out so many commands of one kind, as they arrive together."""
    machine = RespServer(GridHere(owned), None, (MAP,)).connect(1, "", "", 0)  # type: ignore[arg-type]  # only shown
    machine.opened(NOW)
    keys = [make_key(number).encode() for number in range(count)]
    # Each partition has the map: what needs more than native code waits for another turn, which nobody gives this machine.
    for key in (*keys, *(key + b"n" for key in keys)):
        holder = owned[partition_of(to_data(key), len(owned))]
        if holder is not None:
            holder.replica.map(MAP).put(to_data(key), bytes(STAMP_BYTES) + to_data(b"1"), 0, NOW)
    kinds = {
        "SET": [command(b"SET", key, make_value(number)) for number, key in enumerate(keys)],
        "GET": [command(b"GET", key) for key in keys],
        "INCR": [command(b"INCR", key + b"n") for key in keys],
    }
    sent = {kind: b"".join(commands) for kind, commands in kinds.items()}

    def call(data: bytes) -> Any:
        return lambda: machine.received(data, NOW)

    return {f"carry_out, {kind}": call(data) for kind, data in sent.items()}
