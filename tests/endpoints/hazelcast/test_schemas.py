"""Schemas of Compact objects: stored as entries of the grid, given to any client, bounded; the objects themselves stay bytes."""

import struct
from typing import Any

import pytest
from hazelcast.serialization.api import FieldKind
from hazelcast.serialization.compact import FieldDescriptor, Schema
from hypothesis import given
from hypothesis import strategies as st

from endpoints.hazelcast.requests import BEGIN, END, NULL, request
from endpoints.hazelcast.test_session import MEMBER, OTHER, Peer, error_of
from phalanx.codec.compact_schemas import MAX_SCHEMA_FIELDS, SCHEMAS, CompactSchema
from phalanx.codec.values import from_data, to_data
from phalanx.wire.messages import CountReply, Get, GetAll, PutIfAbsent, SizeOf, ValueReply, ValuesReply
from phalanx_protocols.hazelcast.frames import uuid_field
from phalanx_protocols.hazelcast.schema_calls import MAX_SCHEMAS, MAX_SCHEMAS_AT_ONCE
from phalanx_protocols.hazelcast.views import uuid_of_member

BOOK = CompactSchema("book", [("price", FieldKind.INT64), ("title", FieldKind.STRING)])
INVALID = 23


def schema_frames(schema: CompactSchema) -> list[bytes | int]:
    fields: list[bytes | int] = []
    for name, kind in schema.fields:
        fields += [BEGIN, struct.pack("<i", kind), name.encode(), END]
    return [BEGIN, schema.type_name.encode(), BEGIN, *fields, END, END]


def send(*schemas: CompactSchema, number: int = 7) -> bytes:
    if len(schemas) == 1:
        return request(0x001300, number, b"", *schema_frames(schemas[0]))
    frames = [each for schema in schemas for each in schema_frames(schema)]
    return request(0x001500, number, b"", BEGIN, *frames, END)


def requests_of(peer: Peer) -> list[Any]:
    return [each for _, each in peer.waiting[0].step.requests]


def reply_all(peer: Peer, make: Any) -> list[tuple[int, int, list[Any]]]:
    return peer.answer([make(each) for each in requests_of(peer)])


def absent(peer: Peer, size: int = 0) -> None:
    """The owners have no such schema, and so many others."""
    reply_all(peer, lambda get: ValuesReply(get.id, [None] * len(get.keys)))
    sizes = requests_of(peer)
    assert all(isinstance(each, SizeOf) and each.map == SCHEMAS for each in sizes)
    peer.answer([CountReply(each.id, size if each is sizes[0] else 0) for each in sizes])


@given(
    st.text(max_size=8),
    st.dictionaries(st.text(max_size=8), st.integers(1, 46).filter(lambda kind: kind not in (5, 6, 31, 32))),
)
def test_ids_are_those_of_the_clients(name: str, fields: dict[str, int]) -> None:
    theirs = Schema(name, [FieldDescriptor(field, FieldKind(kind)) for field, kind in fields.items()])
    ours = CompactSchema(name, [(field.name, field.kind) for field in theirs.fields])
    assert ours.id == theirs.schema_id


def test_a_schema_is_stored_before_the_client_is_told_that_all_members_have_it() -> None:
    peer = Peer()
    peer.come_in()
    assert peer.send(send(BOOK)) == []
    assert [(type(each), each.map, each.keys) for each in requests_of(peer)] == [(GetAll, SCHEMAS, [to_data(BOOK.id)])]
    absent(peer)
    (put,) = requests_of(peer)
    assert (type(put), put.map, put.key) == (PutIfAbsent, SCHEMAS, to_data(BOOK.id))
    assert from_data(put.value) == ["book", [["price", FieldKind.INT64], ["title", FieldKind.STRING]]]
    ((kind, number, frames),) = peer.answer([ValueReply(put.id, None)])
    members = b"".join(uuid_field(uuid_of_member(member)) for member in (MEMBER, OTHER))
    assert (kind, number, frames[1:]) == (0x001301, 7, [members])


def test_a_schema_that_is_there_is_stored_no_second_time() -> None:
    peer = Peer()
    peer.come_in()
    peer.send(send(BOOK))
    ((kind, _, _),) = reply_all(peer, lambda get: ValuesReply(get.id, [BOOK.stored]))
    assert kind == 0x001301


def test_a_client_that_comes_back_sends_all_that_it_has() -> None:
    other = CompactSchema("other", [])
    peer = Peer()
    peer.come_in()
    assert peer.send(send(BOOK, other)) == []
    while peer.waiting and isinstance(requests_of(peer)[0], GetAll):
        gets = requests_of(peer)
        reply_all(peer, lambda get: ValuesReply(get.id, [None] * len(get.keys)))
    assert gets
    sizes = requests_of(peer)
    peer.answer([CountReply(each.id, 0) for each in sizes])
    puts = requests_of(peer)
    assert sorted(each.value for each in puts) == sorted([BOOK.stored, other.stored])
    ((kind, _, frames),) = peer.answer([ValueReply(each.id, None) for each in puts])
    assert (kind, len(frames)) == (0x001501, 1)


@pytest.mark.parametrize(
    "stored", [BOOK.stored, None, to_data("somebody else has written this"), to_data([1, 2]), b"\0\0\0\x63"]
)
def test_a_schema_is_given_to_who_asks_for_its_id(stored: bytes | None) -> None:
    peer = Peer()
    peer.come_in()
    peer.send(request(0x001400, 9, struct.pack("<q", BOOK.id)))
    asked = peer.waiting[0].request
    assert (type(asked), asked.map, asked.key) == (Get, SCHEMAS, to_data(BOOK.id))
    ((kind, _, frames),) = peer.answer(ValueReply(asked.id, stored))
    assert (kind, frames[1:]) == (0x001401, schema_frames(BOOK) if stored == BOOK.stored else [NULL])


def test_two_schemas_of_one_id_are_told() -> None:
    peer = Peer()
    peer.come_in()
    peer.send(send(BOOK))
    (told,) = reply_all(peer, lambda get: ValuesReply(get.id, [to_data(["another", []])]))
    assert error_of(told)[0] == INVALID
    assert "another schema has the id" in error_of(told)[1]


def test_the_schemas_of_a_cluster_are_bounded() -> None:
    peer = Peer()
    peer.come_in()
    peer.send(send(BOOK))
    reply_all(peer, lambda get: ValuesReply(get.id, [None]))
    sizes = requests_of(peer)
    (told,) = peer.answer([CountReply(each.id, MAX_SCHEMAS if each is sizes[0] else 0) for each in sizes])
    assert error_of(told) == (INVALID, error_of(told)[1])
    assert "takes no more" in error_of(told)[1]


@pytest.mark.parametrize(
    ("schemas", "told"),
    [
        (
            [CompactSchema("b", [(f"f{number}", 7) for number in range(MAX_SCHEMA_FIELDS + 1)])],
            "1001 fields: at most 1000",
        ),
        ([CompactSchema("b", [("x" * 1_001, 7)])], "names of at most 1000 characters"),
        ([CompactSchema("b" * 1_001, [])], "names of at most 1000 characters"),
        ([CompactSchema(f"b{number}", []) for number in range(MAX_SCHEMAS_AT_ONCE + 1)], "at once are more than 1000"),
    ],
)
def test_schemas_that_no_client_needs_are_refused_and_the_connection_goes_on(
    schemas: list[CompactSchema], told: str
) -> None:
    peer = Peer()
    peer.come_in()
    (answer,) = peer.send(send(*schemas))
    assert error_of(answer)[0] == INVALID
    assert told in error_of(answer)[1]
    assert peer.closed is None
    assert not peer.waiting


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([BEGIN, b"b", BEGIN, BEGIN, b"\0", b"f", END, END, END], "has no kind"),
        ([BEGIN, b"b", *schema_frames(CompactSchema("", [("f", 7), ("f", 9)]))[2:]], "two fields of one name"),
        ([BEGIN, b"b", BEGIN], "ends"),
        ([BEGIN, b"\xff", BEGIN, END, END], "not UTF-8"),
    ],
)  # fmt: skip
def test_what_is_no_schema_ends_the_connection(frames: list[bytes | int], why: str) -> None:
    peer = Peer()
    peer.come_in()
    peer.send(request(0x001300, 9, b"", *frames))
    assert peer.closed is not None
    assert why in peer.closed.reason
