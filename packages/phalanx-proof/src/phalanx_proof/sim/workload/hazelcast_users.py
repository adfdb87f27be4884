"""Hazelcast clients of the members: as `RedisUsers`, through the machine that a real connection of theirs has (`phalanx_protocols.hazelcast`).

A counter is incremented by a function of the members, a register is put and got. Each client authenticates first, and is told of
members and partitions as they change.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from phalanx.codec.values import MSGPACK_TYPE_ID, from_data, to_data
from phalanx.common.ids import MemberId
from phalanx.endpoints.protocol import Effect, Perform, SendBytes, SendRequest
from phalanx.machine.inputs import Call
from phalanx.maps.call_plans import CallOwners
from phalanx_proof.sim.checkers.redis_checker import RedisKey
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.options import REDIS
from phalanx_proof.sim.workload.redis_users import RedisUsers, SimulatedGrid
from phalanx_protocols.hazelcast.errors import Code
from phalanx_protocols.hazelcast.frames import FrameMark, MessageReader
from phalanx_protocols.hazelcast.server import HazelcastServer

_ANSWER = struct.Struct("<iq")
_CODE = _VERSION = struct.Struct("<i")
_UNDONE = (Code.RETRYABLE, Code.MAP_FULL, Code.NOT_ENOUGH_MEMBERS)
_EVENTS = (0x000302, 0x000303)
NEWS_EVERY_MS = 200
BREAKS = 0.1
"""How often a client breaks off that has waited for an answer."""


class HazelcastUsers(RedisUsers):
    """All these clients of one history."""

    most_together = 1
    """Requests of one client are carried out side by side: two of one key would have no order."""
    _last = 0
    """The number of the request that was made last."""

    def _note(self, client: Any, kind: str, subject: Any) -> None:
        """Count a request that is made now, and remember what its answer belongs to."""
        self._last += 1
        client.waiting.append((kind, subject))
        client.asked[self._last] = kind, subject

    def _connect(self, host: Host, member: MemberId) -> Any:
        client: Any = super()._connect(host, member)
        grid: SimulatedGrid = client.grid
        self._refresh(client)
        client.machine = HazelcastServer(grid, None, "sim").connect(1, "", grid.member, 0)  # type: ignore[arg-type]  # only shown
        client.reader = MessageReader(grid.max_frame_bytes)
        texts = (b"sim", None, None, b"PYH", b"5.5", b"client")
        client.asked, client.known_versions = {}, {}
        self._note(client, "come in", None)
        first = b"CP2" + _request(0x000100, self._last, bytes(1) + bytes(16) + b"\x01", *texts, is_open=True)
        self._carry_out(client, client.machine.received(first, self._world.now))
        return client

    def _command(self, client: Any) -> bytes:
        self._refresh(client)
        kind, register = self._rng.random(), client.register
        key = bytes(4) + to_data(register.key)
        if kind < 0.3:
            value = register.send(self._world.now)
            self._note(client, "set", value)
            return _request(0x010F00, self._last, bytes(16), REDIS.encode(), key, bytes(4) + to_data(value))
        if kind < 0.5:
            self._note(client, "get", None)
            return _request(0x010200, self._last, bytes(8), REDIS.encode(), key)
        counter = self._rng.choice(self.counters)
        counter.sent += 1
        self._note(client, "incr", counter)
        call = struct.pack(">i?iii", -2, True, MSGPACK_TYPE_ID, 1, 9) + b"increment" + struct.pack(">i", 1) + to_data(1)
        return _request(
            0x012E00, self._last, bytes(8), REDIS.encode(), bytes(4) + call, bytes(4) + to_data(counter.key)
        )

    def _turn(self, host: Host) -> None:
        client = self._clients.get(host.number)
        if client is not None and client.waiting and self._runs and self._rng.random() < BREAKS:
            self._break_off(client)
        elif client is not None and host.node is not None and not host.paused_until:
            self._refresh(client)
            self._carry_out(client, client.machine.cluster_changed(self._world.now))
        if not self._runs:
            self._plan_turn(host, NEWS_EVERY_MS)  # clients that ask for nothing are told of the cluster all the same
        super()._turn(host)

    def _refresh(self, client: Any) -> None:
        """Let the machine of a client see the view and the table of its member."""
        node = client.host.running_node
        client.grid.view, client.grid.table = node.membership.view, node.installed_table.table

    def _carry_out(self, client: Any, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Perform):
                step = effect.step
                if isinstance(step, CallOwners):
                    for partition, request in step.requests:  # there is one
                        self._ask(client, effect.number, partition, request, is_step=True)
                else:
                    table = client.host.running_node.installed_table.table
                    self._world.queue.call_at(self._world.now + 1, self._hand_on, client, effect.number, table)
            elif isinstance(effect, SendRequest):
                self._ask(client, effect.number, effect.partition, effect.request)
            elif isinstance(effect, SendBytes):
                self._on_bytes(client, effect.data)

    def _ask(self, client: Any, called: int, partition: int, request: Any, *, is_step: bool = False) -> None:
        asked = (client, -called, None) if is_step else (client, called, self._written(client, request))
        self._call(client.host, client.grid.member, Call(partition, request), asked)

    def _hand_on(self, client: Any, number: int, reply: Any) -> None:
        if number < 0:  # the outcome of a step is a list of replies
            number, reply = -number, [reply]
        super()._hand_on(client, number, reply)

    def _on_bytes(self, client: Any, data: bytes | bytearray) -> None:
        client.reader.feed(bytes(data))
        while (message := client.reader.next()) is not None:
            kind, number = _ANSWER.unpack_from(message[0])
            if kind in _EVENTS:
                self._on_event(client, kind, *_VERSION.unpack_from(message[0], _ANSWER.size + _VERSION.size))
                continue
            if number not in client.asked:
                self.wrong.append((RedisKey(client.register.key), f"there was no request {number} to be answered"))
                continue
            waiting, subject = client.asked.pop(number)
            client.waiting.remove((waiting, subject))
            if kind == 0:
                self._on_refusal(client, waiting, subject, _CODE.unpack(message[3])[0], message[5].decode())
            elif waiting == "come in":
                self._note(client, "watch", None)
                watch = _request(0x000300, self._last, b"\x00")
                self._carry_out(client, client.machine.received(watch, self._world.now))
            elif waiting != "watch":
                self.commands += 1
                last = message[-1]
                is_null = waiting == "get" and isinstance(last, FrameMark)
                found = b"%d" % from_data(last[4:]) if waiting == "get" and not is_null else b"$-1"
                self._on_answer(client, waiting, subject, found)

    def _on_event(self, client: Any, kind: int, version: int) -> None:
        """Take note of a view or a table: a client goes on with newer ones only."""
        if version < client.known_versions.get(kind, -1):
            self.wrong.append(
                (RedisKey(client.register.key), f"event {kind:06x} tells version {version} after a newer one")
            )
        client.known_versions[kind] = version

    def unmet(self) -> list[str]:
        clients: Iterable[Any] = self._clients.values()
        behind = [
            each for each in clients if each.host.has_joined and each.known_versions and _known(each) != _newest(each)
        ]
        return super().unmet() + [
            f"a Hazelcast client of {each.host.number} knows versions {_known(each)}, not {_newest(each)}"
            for each in behind
        ]

    def _on_refusal(self, client: Any, waiting: str, subject: Any, code: int, text: str) -> None:
        is_undone = code in _UNDONE
        if not is_undone and code != Code.INDETERMINATE:
            self.wrong.append((RedisKey(client.register.key), f"{waiting} was refused: {code} {text}"))
        if waiting == "come in":
            del self._clients[client.host.number]
        elif waiting == "incr" and is_undone:
            subject.sent -= 1
        elif waiting == "set":
            client.register.fail(subject, is_undone=is_undone)


def _known(client: Any) -> list[int]:
    """Return the versions of the view and the table that a client was told last."""
    return list(client.known_versions.values())


def _newest(client: Any) -> list[int]:
    """Return the versions of the view and the table that the member of a client has."""
    node = client.host.running_node
    view = node.membership.view
    return [view.version if view is not None else -1, node.installed_table.table.version]


def _request(kind: int, number: int, fixed: bytes, *fields: bytes | None, is_open: bool = False) -> bytes:
    """Return a request. `is_open`: an empty list stands behind its fields."""
    parts = [(struct.pack("<iqi", kind, number, -1) + fixed, 0xC000)]
    parts += [(b"", 1 << 10) if field is None else (field, 0) for field in fields]
    parts += [(b"", 1 << 12), (b"", 1 << 11)] if is_open else []
    frames = [struct.pack("<iH", 6 + len(payload), flags) + payload for payload, flags in parts[:-1]]
    payload, flags = parts[-1]
    return b"".join(frames) + struct.pack("<iH", 6 + len(payload), flags | 1 << 13) + payload
