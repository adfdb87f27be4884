"""Every request has a bound: lists and texts where they are decoded, the work in the table of docs/resources.md."""

from typing import Any, get_args

import msgspec
import pytest

from phalanx.common.hidden_maps import StagedStep
from phalanx.common.map_settings import MAX_TEXT_LENGTH
from phalanx.wire import messages as m
from phalanx.wire.codec import FrameReader, encode_frame, message_decoder, request_decoder
from phalanx.wire.conditions import Condition, Kind, Relation
from phalanx.wire.limits import MAX_CONDITIONS, MAX_KEYS, MAX_PLAIN_FRAME_BYTES
from phalanx.wire.refused import UnreadRequest
from support.roots import DOCS

PAGE = DOCS / "resources.md"
REQUESTS = sorted(get_args(m.Request), key=lambda kind: kind.__name__)
IS_NULL = Condition(-1, ("a",), Kind.ANY, Relation.NULL)
UNBOUNDED = (msgspec.inspect.StrType, msgspec.inspect.ListType, msgspec.inspect.VarTupleType, msgspec.inspect.DictType)


def unbounded(kind: Any, where: str) -> list[str]:
    """The places within a type at which a frame may say any length. (Bytes are no longer than their frame.)"""
    found = []
    if isinstance(kind, UNBOUNDED) and getattr(kind, "max_length", None) is None:
        found.append(where)
    if isinstance(kind, msgspec.inspect.StructType):
        for field in kind.fields:
            found += unbounded(field.type, f"{where}.{field.name}")
    elif isinstance(kind, msgspec.inspect.UnionType):
        for each in kind.types:
            found += unbounded(each, where)
    elif hasattr(kind, "item_type"):
        found += unbounded(kind.item_type, f"{where}[]")
    return found


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.__name__)
def test_every_list_and_text_of_a_request_has_a_limit_that_holds_while_it_is_decoded(kind: type) -> None:
    # A member's name is in the head of each of its connections, and so is bounded there.
    places = unbounded(msgspec.inspect.type_info(kind), kind.__name__)
    assert [place for place in places if place != "MergeEntries.former"] == []


def test_an_unbounded_list_would_be_found() -> None:
    class Wrong(msgspec.Struct):
        named: list[tuple[m.Hello, ...]] | None

    assert unbounded(msgspec.inspect.type_info(Wrong), "Wrong")[:2] == ["Wrong.named", "Wrong.named[]"]


def test_the_page_of_bounds_has_a_row_for_every_request() -> None:
    rows = [line.split("|")[1:-1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    stated = {name.strip(" `"): bound.strip() for first, bound, *_ in rows for name in first.split(",")}
    assert {kind.__name__ for kind in REQUESTS} - set(stated) == set()
    assert all(stated[kind.__name__] for kind in REQUESTS)


def test_a_request_over_a_limit_is_told_by_its_number_and_what_follows_is_read() -> None:
    scan = m.ScanPacked(7, "m", 0, 271, b"", 1, 1, (IS_NULL,) * (MAX_CONDITIONS + 1))
    stream = encode_frame(scan) + encode_frame(m.Get(8, "m", b"k"))
    refused, follows = FrameReader(request_decoder).feed(stream)
    assert isinstance(refused, UnreadRequest)
    assert refused.id == 7
    assert refused.text == (
        "a ScanPacked request has more than 64 items in, or within, its field 'conditions': ask for less at once"
    )
    assert follows == m.Get(8, "m", b"k")


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (m.GetAll(3, "m", [b"k"] * (MAX_KEYS + 1)), "keys"),
        (m.PutAll(3, "m", [], [b"v"] * (MAX_KEYS + 1), 0), "values"),
        (m.Get(3, "m" * (MAX_TEXT_LENGTH + 1), b"k"), "map"),
        (m.ChangeStaged(3, "m", [], 1, StagedStep.APPLY, "j", ["a" * (MAX_TEXT_LENGTH + 1)]), "attempts"),
    ],
    ids=["GetAll", "PutAll", "Get", "ChangeStaged"],
)
def test_the_field_that_is_too_long_is_named(request_: Any, field: str) -> None:
    (refused,) = FrameReader(message_decoder).feed(encode_frame(request_))
    assert isinstance(refused, UnreadRequest)
    assert refused.id == 3
    assert f"its field {field!r}" in refused.text


def test_only_requests_that_carry_entries_may_be_long() -> None:
    count = MAX_PLAIN_FRAME_BYTES // 4
    (refused,) = FrameReader(message_decoder).feed(encode_frame(m.SizeOf(9, "m", [70_000] * count, 271)))
    assert isinstance(refused, UnreadRequest)
    assert (refused.id, "SizeOf request of" in refused.text) == (9, True)
    put = m.Put(9, "m", b"k", bytes(MAX_PLAIN_FRAME_BYTES), 0)
    assert FrameReader(request_decoder).feed(encode_frame(put)) == [put]
