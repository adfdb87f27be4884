"""A Redis client's connection on partitions that are all here, for `./run bench compiled`: with the twin, and without."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from benchmarks.plan import MAP, make_key, make_value
from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_data
from phalanx.common.clock import GridClock
from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId
from phalanx.common.view import MembersView
from phalanx.endpoints.resp.framing import command
from phalanx.endpoints.resp.server import RespServer
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.requests.redis_commands import CarriedOut, carry_out
from phalanx.grid.serving.update_results import Updated
from phalanx.grid.serving.updates import BUILT_IN, apply_function

NOW = 1_000


class GridHere:
    """What a machine uses of a member, where every key is here and nobody has to know of a write (`endpoints.protocol.GridAccess`)."""

    call_timeout_s = 30.0
    max_frame_bytes = max_answer_bytes = 64 * 1024 * 1024
    open_from = 0
    member = MemberId("a:1/1")
    view: MembersView | None = None
    table = None

    def __init__(self, owned: list[OwnedPartition]) -> None:
        self.partition_count = len(owned)
        config = NodeConfig()
        self.grid: Any = SimpleNamespace(
            owned=owned, clock=GridClock(), counts_reads=False, any_idle=False, traffic=SimpleNamespace(last_at=0),
            guard=SimpleNamespace(watches=lambda name: False), parked=SimpleNamespace(released=()),
            evictor=SimpleNamespace(is_on=False), max_key=config.max_key_bytes, max_value=config.max_value_bytes,
        )  # fmt: skip

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

    def _owned(self, key: bytes) -> OwnedPartition:
        owned: OwnedPartition = self.grid.owned[partition_of(key, self.partition_count)]
        return owned

    def get_here(self, name: str, key: bytes) -> bytes | None:
        store = self._owned(key).replica.maps.get(name)
        return None if store is None else store.get(key, NOW)

    def put_here(self, name: str, key: bytes, value: bytes) -> bool:
        self._owned(key).put_without_backups(name, key, self.grid.clock.stamped(value, NOW), NOW)
        return True

    def update_here(self, name: str, key: bytes, function: str, arguments: list[bytes]) -> Updated | None:
        made = apply_function(BUILT_IN, function, self.get_here(name, key), arguments)
        if isinstance(made.then, bytes):
            self.put_here(name, key, made.then)
        return made

    def carry_out_here(
        self, name: str, data: bytes, start: int, most: int, most_bytes: int, nil: bytes
    ) -> CarriedOut | None:
        return carry_out(self.grid, name, data, start, most, most_bytes, nil, NOW, may_write=True)


def make_pipelines(owned: list[OwnedPartition], count: int) -> dict[str, Any]:
    """Return calls that each carry out so many commands of one kind, as they arrive together."""
    machine = RespServer(GridHere(owned), None, (MAP,)).connect(1, "", "", 0)  # type: ignore[arg-type]  # only shown
    machine.opened(NOW)
    keys = [make_key(number).encode() for number in range(count)]
    for key in keys:
        owned[partition_of(to_data(key), len(owned))].put_without_backups(
            MAP, to_data(key), bytes(8) + to_data(b"1"), NOW
        )
    kinds = {
        "SET": [command(b"SET", key, make_value(number)) for number, key in enumerate(keys)],
        "GET": [command(b"GET", key) for key in keys],
        "INCR": [command(b"INCR", key + b"n") for key in keys],
    }
    sent = {kind: b"".join(commands) for kind, commands in kinds.items()}

    def call(data: bytes) -> Any:
        return lambda: machine.received(data, NOW)

    return {f"carry_out, {kind}": call(data) for kind, data in sent.items()}
