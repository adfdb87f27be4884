"""What a Hazelcast client sends: requests as its own codecs write them, and changes of these."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import struct
import uuid
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar

from endpoints.hazelcast.requests import authentication
from hostile.fuzzing import values
from hostile.fuzzing.changes import ODD_NUMBERS, changed_bytes
from hostile.fuzzing.target import Case, Target, Turns
from hostile.fuzzing.targets.member import MAX_FRAME_BYTES, Conversation, HeldMember
from phalanx.codec.values import to_data
from phalanx.common.ids import Address
from phalanx.endpoints.protocol import Credentials
from phalanx.grid.serving.updates import BUILT_IN
from phalanx_protocols.hazelcast.executions import UPDATE_CLASS, UPDATE_FACTORY
from phalanx_protocols.hazelcast.server import HazelcastServer

STRANGER, APART = 1, 2
"""Flags of the first part: the client does not authenticate first; each request comes by itself."""
RECYCLED = 4_000
codecs: Any = importlib.import_module("hazelcast.protocol.codec")
serialised: Any = importlib.import_module("hazelcast.serialization.data").Data
index: Any = importlib.import_module("hazelcast.config").IndexConfig
_KEYS = tuple(to_data(key) for key in ("k", "s", "l", "d", "x", "none", b"big", b"h", b"bighash"))


def _modules() -> list[Any]:
    """The codecs of requests, those of maps several times: they are what is served."""
    found = []
    for each in pkgutil.iter_modules(codecs.__path__):
        module = importlib.import_module(f"hazelcast.protocol.codec.{each.name}")
        if hasattr(module, "encode_request"):
            found += [module] * (4 if each.name.startswith(("map_", "multi_map", "client_", "fenced")) else 1)
    return found


def processor(name: str, arguments: list[bytes]) -> bytes:
    """Return an entry processor: the name of a function, and its arguments."""
    text = name.encode()
    numbers = b"".join(each.to_bytes(4, "big") for each in (UPDATE_FACTORY, UPDATE_CLASS, len(text)))
    return b"\xff\xff\xff\xfe\x01" + numbers + text + len(arguments).to_bytes(4, "big") + b"".join(arguments)


class Hazelcast(Target):
    """A byte of flags, then requests."""

    name = "hazelcast"
    answer_bytes: ClassVar[int] = 4 * MAX_FRAME_BYTES
    _functions = tuple(sorted(BUILT_IN))
    _plain = tuple(name for name in _functions if not name.startswith("redis"))

    def __init__(self) -> None:
        self._member = HeldMember()
        self._played = 0
        self._modules = _modules()
        self._bulk = [
            each
            for each in self._modules
            if each.__name__.endswith(("get_all_codec", "execute_on_key_codec", "execute_on_keys_codec"))
        ]
        self._number = 100

    def make(self, rng: Random) -> Case:
        flags = rng.choice((0, 0, 0, 0, APART, STRANGER))
        made = [bytes([flags])]
        for _ in range(rng.choice((1, 1, 2, 4))):
            one = self._request(rng)
            times = rng.choice((8, 64, 1_000)) if rng.random() < 0.02 else 1
            made += [one] * min(times, 2**20 // max(1, len(one)))
        return made

    def _request(self, rng: Random) -> bytes:
        module = rng.choice(self._bulk if rng.random() < 0.2 else self._modules)
        try:
            message = module.encode_request(
                **{name: self._argument(rng, name) for name in inspect.signature(module.encode_request).parameters}
            )
        except (TypeError, AttributeError, KeyError, ValueError, ArithmeticError, IndexError, struct.error):
            return authentication(1 + rng.randrange(3))
        self._number += 1
        message.set_correlation_id(self._number)
        message.set_partition_id(-1)
        made = bytes(message.buf)
        return changed_bytes(rng, made) if rng.random() < 0.2 else made

    def _stored(self, rng: Random) -> Any:
        return serialised(bytes(4) + (rng.choice(_KEYS) if rng.random() < 0.6 else values.data(rng)))

    def _argument(self, rng: Random, name: str) -> Any:
        if name == "name":
            return rng.choice(("m", "m", "m", "m", "phalanx.hazelcast.schemas", "", "é", "new"))
        if name == "keys":
            many = rng.choice((1, 2, 3, 300)) if rng.random() < 0.3 else 1
            return [self._stored(rng) for _ in range(rng.randrange(4))] or [self._stored(rng)] * many
        if name == "entries":
            return [(self._stored(rng), self._stored(rng)) for _ in range(rng.randrange(4))]
        if name == "entry_processor":
            function = rng.choice(self._plain if rng.random() < 0.7 else self._functions)
            many = rng.choice((0, 1, 1, 1, 1, 1, 2, 64))
            return serialised(bytes(4) + processor(function, [values.argument(rng, function) for _ in range(many)]))
        if name in ("key", "value", "test_value", "predicate", "interceptor", "aggregator", "projection", "old_value"):
            return self._stored(rng)
        if name in (
            "thread_id",
            "reference_id",
            "ttl",
            "max_idle",
            "lease",
            "timeout",
            "listener_flags",
            "count",
            "size",
            "delta",
        ):
            return rng.choice(ODD_NUMBERS) % 2**31 * rng.choice((1, -1)) if rng.random() < 0.5 else rng.randrange(3)
        if name == "index_config":
            return index("i", attributes=["this"])
        if name in ("uuid", "registration_id", "client_uuid"):
            return uuid.UUID(int=rng.randrange(3))
        if name == "schema":
            return SimpleNamespace(type_name="T", fields=[])
        if name.startswith(("local_only", "include_", "replace_", "trigger_", "is_")):
            return rng.random() < 0.5
        return rng.choice((1, "some text", None, b"", [], True))

    def play(self, case: Case, turns: Turns) -> None:
        self._played += 1
        if self._played % RECYCLED == 0:
            self._member = HeldMember()
        member = self._member
        member.begin(turns)
        flags = case[0][0] if case and case[0] else 0
        server = HazelcastServer(
            member.grid, Credentials("a token of sixteen bytes", "") if flags & STRANGER else None, "phalanx"
        )
        talk = Conversation(member, server.connect(1, "127.0.0.1:9", Address("127.0.0.1:5701"), member.now))
        talk.send(b"CP2" if flags & STRANGER else b"CP2" + authentication())
        pieces = case[1:] if flags & APART else [b"".join(case[1:])]
        if flags & STRANGER:
            turns.run(talk.send_all, pieces)  # all that it may cost before it has shown who it is
        else:
            talk.send_all(pieces)
        talk.end()


TARGETS: dict[str, type[Target]] = {Hazelcast.name: Hazelcast}
