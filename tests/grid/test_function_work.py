"""What a function does with a value takes time by its length at most, whatever a client has stored or sends.

Containers are not read at all (what would take long is counted here, not timed): neither hashed, nor made into objects.
"""

import struct
from collections.abc import Iterable, Iterator
from decimal import Decimal, localcontext
from typing import Any

import msgspec
import pytest

from phalanx.codec import bounds, containers, messagepack
from phalanx.codec.bounds import (
    MAX_COMPARED_BYTES,
    MAX_EDITED_BYTES,
    MAX_EDITED_PARTS,
    MAX_JSON_PARTS,
    MAX_NAMED_PARTS,
)
from phalanx.codec.values import MSGPACK_PREFIX, Json, from_data, to_data
from phalanx.common.config import NodeConfig
from phalanx.grid.serving.update_results import Effect, Updated, UpdateRefused
from phalanx.grid.serving.updates import (
    ARGUMENTS,
    BUILT_IN,
    MAX_MERGED_BYTES,
    apply_function,
    functions_of,
    of_program,
)

PRIME = 2**61 - 1
"""Python hashes numbers by their remainder by this."""


def packed(value: Any) -> bytes:
    """A value as another program may store it."""
    return MSGPACK_PREFIX + (value if isinstance(value, bytes) else msgspec.msgpack.encode(value))


def nested(depth: int, inner: Any = 1) -> Any:
    for _ in range(depth):
        inner = {"a": inner}
    return inner


def run_of(part: bytes, count: int) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big") + part * count


FLOOD = to_data({1 + PRIME * (n + 20): None for n in range(1_000)})
HOSTILE: dict[str, bytes] = {
    "an int of 256 KiB": to_data(1 << 8 * 256 * 1024),
    "an int of 64 bits": to_data(-(2**63)),
    "a huge Decimal": to_data(Decimal("1E+999999999")),
    "a tiny Decimal": to_data(Decimal("1E-999999999")),
    "a long Decimal": to_data(Decimal("1." + "1" * 100_000)),
    "no number": to_data(Decimal("sNaN")),
    "a float": to_data(float("nan")),
    "keys of one hash": FLOOD,
    "a list of them": packed(b"\x91" + FLOOD[4:]),
    "a million lists": packed(run_of(b"\x90", 1_000_000)),
    "a million lists in one": packed(b"\x91" + run_of(b"\x90", 1_000_000)),
    "a long list": packed(run_of(b"\x01", MAX_EDITED_PARTS)),
    "a long dict": to_data({f"{n:x}": n for n in range(MAX_EDITED_PARTS // 2)}),
    "deep lists": packed(b"\x91" * 900 + b"\x01"),
    "deep dicts": packed(b"\x81\xa1a" * 700 + b"\x01"),
    "as deep as may be": to_data(nested(200)),
    "a deep dict with a long list": packed(b"\x81\xa1a" * 190 + run_of(b"\xc0", 900_000)),
    "a long list of a Hazelcast client": struct.pack(">ii", -29, 50_000) + struct.pack(">iq", -8, 5) * 50_000,
    "a long text": to_data("x" * 2_000_000),
    "long JSON": to_data(Json("[" + "[]," * 1_000_000 + "1]")),
    "deep JSON": to_data(Json("[" * 100_000 + "]" * 100_000)),
    "a dict of JSON": to_data(Json('{"a":"b"}')),
    "broken": MSGPACK_PREFIX + b"\x95\x01",
    "nothing": b"",
}


def pairs() -> Iterator[tuple[bytes | None, Iterable[bytes]]]:
    """Usual values with all arguments, and all values with usual arguments."""
    usual = [to_data(each) for each in (5, Decimal(5), b"5", [1], {"a": 1})]
    for value in (None, *usual):
        yield value, HOSTILE.values()
    for value in HOSTILE.values():
        yield value, usual


@pytest.mark.parametrize("json_dicts", [False, True])
@pytest.mark.parametrize("name", BUILT_IN)
def test_no_function_reads_a_long_container(name: str, json_dicts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    odd: list[Any] = []
    unpack = messagepack.unpack

    def counted(payload: bytes) -> Any:
        found = unpack(payload)
        if isinstance(found, list | dict):
            read.append(len(payload))
        return found

    monkeypatch.setattr(messagepack, "unpack", counted)
    for value, given in pairs():
        for argument in given:
            arguments = [argument] * ARGUMENTS[name][0]
            try:
                apply_function(BUILT_IN, name, value, arguments, json_dicts=json_dicts)
            except UpdateRefused as refusal:
                if refusal.unforeseen or len(str(refusal)) > 1_000:
                    odd.append((value and value[:20], argument[:20], str(refusal)))
    assert odd == []
    most = MAX_EDITED_BYTES if json_dicts else MAX_COMPARED_BYTES
    assert max(read, default=0) <= most


def change(name: str, value: Any, *arguments: Any, json_dicts: bool = False) -> Updated:
    data = [each if isinstance(each, bytes) else to_data(each) for each in (value, *arguments)]
    return apply_function(BUILT_IN, name, data[0], data[1:], json_dicts=json_dicts)


ITEMS, LONG = [0] * MAX_EDITED_PARTS, "x" * (MAX_EDITED_BYTES - 20)


@pytest.mark.parametrize(
    ("name", "value", "arguments", "reason"),
    [
        ("append", [LONG], ["x" * 20], "the list has 1,048,5.. bytes: functions on lists and dicts take up to 1,048,576"),
        ("append", [LONG, "x" * 40], [1], "the value has 1,048,6.. bytes"),
        ("append", [], [LONG + "x" * 40], "an item has 1,048,6.. bytes"),
        ("append", ITEMS, [1], "the list would have 100,001 items"),
        ("extend", [1], [[*ITEMS, 1]], "the argument has 100,001 items"),
        ("add_to_set", [*ITEMS, 1], [1], "the value has 100,001 items"),
        ("merge", {}, [{"a": LONG + "x" * 40}], "the patch has 1,048,6.. bytes"),
        ("merge", {str(n): n for n in range(50_000)}, [{"a": 1}], "the dict would have 50,001 fields"),
        ("merge", {str(n): n for n in range(50_001)}, [{"a": 1}], "the value has 50,001 fields"),
        ("append", [], [[[1]] * 60_000], "an item has more than 100,000 parts"),
        ("append", [], [nested(200)], "an item: containers are nested deeper than 200"),
        ("max", [1] * 5_000, [[1]], "the value has 5,0.. bytes: at most 4,096 are compared"),
        ("max", to_data(1 << 8 * 5_000), [Decimal(1)], "an int of 5,000 bytes and a Decimal: up to 4,096"),
        ("increment", to_data(1 << 8 * 5_000), [Decimal(1)], "an int of 5,000 bytes and a Decimal: up to 4,096"),
        ("redis.hash_set", {}, [[b"a"] * (MAX_NAMED_PARTS + 2)], "ERR 20,002 names and values are more than 20,000"),
        ("redis.hash_set", {"a": LONG + "x" * 40}, [[b"a", b"b"]], "ERR the hash has 1,048,6.. bytes"),
    ],
    ids=lambda each: each[:40] if type(each) is str else "",
)  # fmt: skip
def test_each_limit_is_told(name: str, value: Any, arguments: list[Any], reason: str) -> None:
    with pytest.raises(UpdateRefused, match=reason):
        change(name, value, *arguments)


def test_what_just_fits_is_changed() -> None:
    assert from_data(change("append", [], nested(199)).then) == [nested(199)]  # type: ignore[arg-type]
    assert from_data(change("append", ITEMS[1:], 1).then) == [*ITEMS[1:], 1]  # type: ignore[arg-type]
    assert change("discard", ITEMS, 0).then == to_data([])
    assert change("add_to_set", ITEMS, 0).then is Effect.UNCHANGED
    assert from_data(change("extend", {"a": 1} and [1], [nested(199)]).then) == [1, nested(199)]  # type: ignore[arg-type]
    deepest = nested(200)
    assert change("merge", deepest, deepest).then is Effect.UNCHANGED
    assert change("max", "x" * 2_000_000, "y" * 2_000_000).then == to_data("y" * 2_000_000)
    assert change("max", 1 << 8 * 100_000, 2.5).then is Effect.UNCHANGED


def test_a_dict_within_a_dict_is_gone_through_with_each_of_them() -> None:
    inner = run_of(b"\xc0", 200_000)
    deep = packed(b"\x81\xa1a" * 190 + inner)
    with pytest.raises(UpdateRefused, match=f"more than {MAX_MERGED_BYTES:,} bytes are to be gone through"):
        change("merge", deep, nested(190, {"b": 1}))
    assert change("merge", deep, nested(3, {"b": 1})).then is not Effect.UNCHANGED
    with pytest.raises(UpdateRefused, match="each dict counts as 512 at least"):
        change("merge", {}, {str(n): {} for n in range(10_000)})
    assert len(from_data(change("merge", {}, {str(n): {} for n in range(5_000)}).then)) == 5_000  # type: ignore[arg-type]


def test_json_has_fewer_parts() -> None:
    def text(parts: int) -> Json:
        return Json('{"a":[' + ",".join(["1"] * (parts - 2)) + "]}")

    many = MAX_JSON_PARTS
    assert change("merge", text(many - 10), {"b": 1}, json_dicts=True).result is not None
    with pytest.raises(UpdateRefused, match="functions take JSON of up to"):
        change("merge", text(many + 10), {"b": 1}, json_dicts=True)
    with pytest.raises(UpdateRefused, match="parts: functions do not make more"):
        change("merge", text(10), {"b": [1] * many}, json_dicts=True)


def test_the_sum_of_decimals_does_not_depend_on_what_a_thread_has_set() -> None:
    with localcontext() as context:
        context.prec = 3
        made = change("increment", Decimal("1.23456"), Decimal("0.00004"), 0)
    assert made.result == to_data(Decimal("1.23460"))


def test_a_programs_function_is_given_no_dict_whose_keys_share_a_hash() -> None:
    called: list[Any] = []
    functions = {"own": of_program("own", lambda value, *arguments: called.append(value))}
    for value, arguments in ((FLOOD, []), (to_data(1), [FLOOD])):
        with pytest.raises(UpdateRefused, match="more than 64 keys of one hash"):
            apply_function(functions, "own", value, arguments)
    assert called == []


def test_parts_stay_as_they_were_stored() -> None:
    """Another program may write its numbers in more bytes than Python would: nobody has asked to change them."""
    odd = b"\xcd\x00\x05"
    assert change("append", packed(b"\x91" + odd), 1).then == packed(b"\x92" + odd + b"\x01")
    assert change("merge", packed(b"\x81\xa1a" + odd), {"b": 1}).then == packed(b"\x82\xa1a" + odd + b"\xa1b\x01")


@pytest.mark.parametrize("items", [run_of(b"\x80", 99_000), b"\x80" * 1], ids=["long ones", "short ones"])
def test_items_that_are_too_many_together_are_not_gone_through_one_by_one(
    items: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked: list[int] = []
    walk = bounds.depth_of

    def counted(payload: bytes, most: int) -> int | None:
        walked.append(len(payload))
        return walk(payload, most)

    monkeypatch.setattr(containers, "depth_of", counted)
    if len(items) == 1:
        items = run_of(items, 16_000)
    with pytest.raises(UpdateRefused, match=r"the items (have|has) more than"):
        apply_function(BUILT_IN, "append", None, [packed(items)] * 64)
    assert sum(walked) <= MAX_EDITED_BYTES + 1024


def test_a_member_makes_no_text_that_is_longer_than_its_values() -> None:
    functions = functions_of(NodeConfig(max_value_bytes=1_000))
    for name, arguments in (("redis.set_range", [991, b"xy"]), ("redis.append", [b"x" * 993])):
        with pytest.raises(UpdateRefused, match="max_value_bytes"):
            apply_function(functions, name, None, [to_data(each) for each in arguments])
    made = apply_function(functions, "redis.set_range", None, [to_data(990), to_data(b"xy")]).then
    assert isinstance(made, bytes)
    assert len(made) == 1_000
