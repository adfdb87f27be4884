"""Every request that Hazelcast's Python client can send is answered, asked for at owners, or refused by its name."""

import importlib
import inspect
import pkgutil
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from hazelcast.protocol import codec as codecs

from endpoints.hazelcast.requests import data, request
from endpoints.hazelcast.test_session import Peer, error_of
from phalanx.codec.values import to_data
from phalanx_protocols.hazelcast.names import SERVICES

REFUSED = {
    "addEntryListener", "addEntryListenerToKey", "addEntryListenerToKeyWithPredicate", "addEntryListenerWithPredicate",
    "addInterceptor", "addNearCacheInvalidationListener", "aggregate", "aggregateWithPredicate", "entriesWithPagingPredicate",
    "entriesWithPredicate", "executeWithPredicate", "keySetWithPagingPredicate", "keySetWithPredicate", "loadAll",
    "loadGivenKeys", "project", "projectWithPredicate", "removeAll", "removeInterceptor", "valuesWithPagingPredicate",
    "valuesWithPredicate",
}  # fmt: skip
"""Requests of maps that are refused; docs/hazelcast.md tells of them."""


serialised: Any = importlib.import_module("hazelcast.serialization.data").Data
index: Any = importlib.import_module("hazelcast.config").IndexConfig


def stored(value: Any) -> Any:
    return serialised(data(to_data(value)))


CALL = serialised(data(b"\xff\xff\xff\xfe\x01" + (19792).to_bytes(4, "big") + b"\0\0\0\x01\0\0\0\x01f\0\0\0\0"))
PAGING = SimpleNamespace(
    anchor_data_list_holder=SimpleNamespace(anchor_page_list=[], anchor_data_list=[]), predicate_data=None,
    comparator_data=None, page_size=10, page=0, iteration_type_id=0, partition_key_data=None,
)  # fmt: skip
ARGUMENTS: dict[str, Any] = {
    "name": "m", "id": "some id", "registration_id": uuid.UUID(int=1), "index_config": index("i", attributes=["this"]),
    "entry_processor": CALL, "keys": [stored("k")], "entries": [(stored("k"), stored("v"))],
    **dict.fromkeys(("key", "value", "test_value", "predicate", "interceptor", "aggregator", "projection"), stored("k")),
    **dict.fromkeys(("thread_id", "reference_id", "ttl", "max_idle", "lease", "timeout", "listener_flags"), 1),
    **dict.fromkeys(("local_only", "include_value", "replace_existing_values", "trigger_map_loader"), True),
}  # fmt: skip


def modules(prefix: str) -> list[str]:
    found = [each.name for each in pkgutil.iter_modules(codecs.__path__)]
    return [name for name in found if name.startswith(prefix) and hasattr(module(name), "encode_request")]


def module(name: str) -> Any:
    return importlib.import_module(f"hazelcast.protocol.codec.{name}")


def name_of(codec: str) -> str:
    """As the protocol calls the request: map_put_all_codec is putAll."""
    first, *rest = codec.removesuffix("_codec").split("_")[1:]
    return first + "".join(word.capitalize() for word in rest)


def sent(codec: str, number: int) -> bytes:
    """The request as the client writes it."""
    encode = module(codec).encode_request
    wanted = inspect.signature(encode).parameters
    given = {each: PAGING if each == "predicate" and "paging" in codec else ARGUMENTS[each] for each in wanted}
    message = encode(**given)
    message.set_correlation_id(number)
    message.set_partition_id(-1)
    return bytes(message.buf)


@pytest.mark.parametrize("codec", modules("map_"))
def test_every_request_of_maps(codec: str) -> None:
    peer = Peer()
    peer.come_in()
    told = peer.send(sent(codec, 77))
    if name_of(codec) in REFUSED:
        ((kind, number, frames),) = told
        assert (kind, number) == (0, 77)
        code, text = error_of((kind, number, frames))
        assert code == 61
        assert text.startswith(f"Map.{name_of(codec)} is not supported by Phalanx")
    else:
        assert [(kind, number) for kind, number, _ in told] == [(module(codec)._RESPONSE_MESSAGE_TYPE, 77)] or (
            not told and peer.waiting
        )
    assert peer.closed is None
    peer.waiting.clear()
    assert peer.send(sent("map_get_codec", 78)) == []  # the connection is unharmed, and it waits for the owner
    machine: Any = peer.machine
    assert peer.waiting or machine._large is not None  # which holds up the next request


def test_the_client_knows_all_that_is_refused() -> None:
    assert {name_of(codec) for codec in modules("map_")} > REFUSED


@pytest.mark.parametrize(
    "codec", [name for name in modules("") if not name.startswith(("map_", "client_", "dynamic_config"))]
)
def test_every_request_of_other_structures_is_refused_by_name(codec: str) -> None:
    kind = module(codec)._REQUEST_MESSAGE_TYPE
    peer = Peer()
    peer.come_in()
    (message,) = peer.send(request(kind, 5, bytes(40), b"name", b"more"))
    code, text = error_of(message)
    assert code == 61
    assert text.startswith(SERVICES[kind >> 16])
    assert "is not supported by Phalanx, which serves key-value maps" in text
    assert peer.closed is None
