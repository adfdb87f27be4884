"""The native functions do what the functions in Python do, with all that may come: results and errors are compared."""

import sys
import tracemalloc
from array import array
from collections.abc import Callable
from itertools import accumulate, pairwise
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.codec import hashing, native, rows, values
from phalanx.codec.native import INTERFACE, find_native
from phalanx.common import errors
from phalanx.grid.replication import copying
from phalanx.grid.serving import packing
from phalanx.maps import grouping

if TYPE_CHECKING:
    import phalanx_native

    from phalanx.codec.native import NativeCodec
    from phalanx.grid.replica.native import NativeGrid
    from phalanx.maps.grouping import NativeGrouping
    from phalanx_protocols.hazelcast.native import NativeFrames
    from phalanx_spark.columns.native import NativeColumns

    # mypy compares what each package calls with what phalanx-native has.
    PARTS: tuple[NativeCodec, NativeGrouping, NativeGrid, NativeFrames, NativeColumns] = (
        phalanx_native, phalanx_native, phalanx_native, phalanx_native, phalanx_native,
    )  # fmt: skip

compiled_only = pytest.mark.skipif(
    native.NATIVE is None, reason="phalanx-native is not built: that needs a C compiler and Python.h"
)

FUNCTIONS: Any = find_native()
Outcome = tuple[str, Any]

ANY_INT = st.integers() | st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1])
ANY_TEXT = st.text() | st.text(st.characters(codec="ascii")) | st.just("\ud800") | st.text(min_size=1024, max_size=1030)
ANY_BYTES = st.binary() | st.binary(min_size=1015, max_size=1025)


class Text(str):
    """A text of another type."""


SCALARS = st.none() | st.booleans() | ANY_INT | st.floats() | ANY_TEXT | ANY_BYTES | st.builds(Text) | st.uuids()
THINGS = SCALARS | st.binary().map(bytearray) | st.lists(SCALARS, max_size=3) | st.tuples(SCALARS) | st.just(object())
DATAS = (
    st.binary(max_size=40)
    | st.builds(
        lambda head, rest: head + rest, st.sampled_from([b"\xff\xff\xff\xf4", b"\xff\xff\xff\xf5"]), st.binary()
    )
    | st.builds(lambda size, rest: b"\xff\xff\xff\xf5" + size.to_bytes(4, "big") + rest, st.integers(0, 9), st.binary())
    | st.builds(lambda rest: b"\xff\xff\xff\xf8" + rest, st.binary(min_size=6, max_size=10))
)


def outcome(function: Callable[..., Any], *arguments: Any) -> Outcome:
    """What it returns, with types (1 is not True), or what it raises and says."""
    try:
        result = function(*arguments)
    except Exception as error:
        return type(error).__name__, str(error)
    return "", (result, [type(item) for item in result] if isinstance(result, list) else None)


def both(module: ModuleType, name: str, *arguments: Any) -> tuple[Outcome, Outcome]:
    function = getattr(module, name)
    native_outcome = outcome(function, *arguments)
    with mock.patch.object(module, "NATIVE", None):
        return native_outcome, outcome(function, *arguments)


def check(module: ModuleType, name: str, *arguments: Any) -> None:
    in_native_code, pure = both(module, name, *arguments)
    # NaN differs from itself.
    assert in_native_code == pure or repr(in_native_code) == repr(pure)


@compiled_only
@given(st.lists(st.binary(max_size=70)), st.integers(1, 2**31 - 1))
def test_partitions_are_the_same(keys: list[bytes], count: int) -> None:
    check(hashing, "partitions_of", keys, count)
    assert [hashing.partition_of(key, count) for key in keys] == hashing.partitions_of(keys, count)
    assert [hashing.partition_in_python(key, count) for key in keys] == hashing.partitions_of(keys, count)


@compiled_only
def test_the_hash_without_an_absolute_value_counts_as_zero() -> None:
    key = b"type" + b"`\x0e'e"
    assert hashing.partition_hash(key) == -(2**31)
    assert hashing.partitions_of([key], 271) == [0]
    check(hashing, "partitions_of", [key], 271)
    assert hashing.partition_of(key, 271) == hashing.partition_in_python(key, 271) == 0


@compiled_only
@given(st.lists(THINGS, max_size=8))
def test_keys_become_the_same_data(keys: list[Any]) -> None:
    check(values, "keys_to_data", keys)


@compiled_only
@given(st.lists(THINGS, max_size=8))
def test_values_become_the_same_data(things: list[Any]) -> None:
    check(values, "values_to_data", things)


@compiled_only
@given(st.lists(SCALARS.filter(lambda value: value != "\ud800"), max_size=8), st.lists(DATAS, max_size=2))
def test_data_becomes_the_same_values(things: list[Any], datas: list[bytes]) -> None:
    try:
        stored = values.values_to_data(things)
    except errors.SerializationError:
        stored = []
    check(values, "values_from_data", [*stored, *datas])


@compiled_only
@given(st.lists(st.tuples(st.text(max_size=3) | st.integers(0, 9), st.none() | SCALARS.filter(bool)), max_size=8))
def test_entries_are_the_same(pairs: list[tuple[Any, Any]]) -> None:
    keys = [key for key, _ in pairs]
    try:
        datas = [None if value is None else values.to_data(value) for _, value in pairs]
    except errors.SerializationError:
        return
    check(values, "entries_from_data", keys, datas)
    check(values, "entries_from_data", keys, datas[1:])
    check(values, "entries_from_data", [*keys, "corrupt"], [*datas, b"\xff\xff\xff\xf5\0\0\0\1\xff"])


@compiled_only
@given(
    st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=40))), st.binary(max_size=9), st.binary(max_size=9)
)
def test_rows_are_the_same(pairs: list[tuple[bytes, bytes]], before: bytes, prefix: bytes) -> None:
    keys, stored = [key for key, _ in pairs], [value for _, value in pairs]
    check(rows, "pack_rows", keys, stored)
    packed = rows.pack_rows(keys, stored)
    check(rows, "unpack_rows", before + packed, len(before), prefix)
    check(rows, "unpack_rows", before + packed[:-1], len(before), prefix)
    check(rows, "extent_of_items", keys)
    check(rows, "greatest_head", packed, len(prefix))
    check(rows, "without_prefixes", [*stored, None], len(prefix))


@compiled_only
@given(
    st.dictionaries(st.binary(max_size=2), st.binary(max_size=20)),
    st.lists(st.tuples(st.binary(max_size=2), st.binary(max_size=40))),
)
def test_rows_are_added_the_same(entries: dict[bytes, bytes], pairs: list[tuple[bytes, bytes]]) -> None:
    packed = rows.pack_rows([key for key, _ in pairs], [value for _, value in pairs])
    in_native_code, without = dict(entries), dict(entries)
    told = rows.add_rows(in_native_code, packed)
    with mock.patch.object(rows, "NATIVE", None):
        assert rows.add_rows(without, packed) == told
    assert in_native_code == without == entries | dict(pairs)
    new, grown = told
    assert new == len(in_native_code) - len(entries)
    held = [sum(map(len, each)) + sum(map(len, each.values())) for each in (entries, in_native_code)]
    assert grown == held[1] - held[0]


@compiled_only
@given(st.binary(max_size=40) | st.binary(max_size=30).map(lambda rest: b"\1\0\0\0" + rest))
def test_what_is_no_packed_rows_adds_nothing(data: bytes) -> None:
    entries: dict[bytes, bytes] = {}
    try:
        rows.extents_of(data)
    except rows.BadRows:
        for name, *arguments in (("add_rows", entries, data), ("greatest_head", data, 8)):
            with pytest.raises(ValueError, match=r"packed rows"):
                getattr(FUNCTIONS, str(name))(*arguments)
        assert not entries
    else:
        assert FUNCTIONS.add_rows(entries, data)[0] == len(entries)


@compiled_only
@given(st.dictionaries(st.binary(max_size=40), st.binary(max_size=300)), st.integers(0, 3_000))
def test_pages_are_the_same(entries: dict[bytes, bytes], max_bytes: int) -> None:
    check(packing, "page_of_entries", entries, max_bytes)


@compiled_only
@given(
    st.dictionaries(st.binary(max_size=9), st.binary(max_size=30)),
    st.lists(st.binary(max_size=9), unique=True),
    st.integers(1, 20),
    st.integers(0, 300),
)
def test_entries_of_a_chunk_are_the_same(
    entries: dict[bytes, bytes], others: list[bytes], most: int, max_bytes: int
) -> None:
    left = [*entries, *(key for key in others if key not in entries)]
    left.sort(key=hash)
    check(copying, "next_rows", entries, left, most, max_bytes)


@compiled_only
@given(
    st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=3)), max_size=20),
    st.lists(st.integers(-3, 3), min_size=1, max_size=9),
)
def test_groups_of_owners_are_the_same(pairs: list[tuple[bytes, bytes]], owner_of: list[int]) -> None:
    keys, stored = [key for key, _ in pairs], [value for _, value in pairs]
    check(grouping, "group_by_owner", keys, [], owner_of)
    check(grouping, "group_by_owner", keys, stored, owner_of)


@compiled_only
@given(st.lists(st.integers(0, 9), max_size=9), st.lists(st.integers(0, 9), max_size=9))
def test_items_come_to_the_same_places(indexes: list[int], items: list[int]) -> None:
    in_native_code: list[Any] = [None] * 10
    without = [*in_native_code]
    some = items[: len(indexes)]
    grouping.put_at(in_native_code, indexes, some)
    with mock.patch.object(grouping, "NATIVE", None):
        grouping.put_at(without, indexes, some)
    assert in_native_code == without


@compiled_only
def test_no_item_comes_beyond_the_list() -> None:
    for wrong in ([3], [-1], [0, 2**40]):
        with pytest.raises(IndexError):
            FUNCTIONS.put_at([0, 1, 2], wrong, wrong)
    with pytest.raises(ValueError, match="2 items for 1 places"):
        FUNCTIONS.put_at([0, 1, 2], [0], [5, 6])
    with pytest.raises(ValueError, match="2 keys and 1 values"):
        FUNCTIONS.group_by_owner([b"key", b"other"], [b"value"], [0], 1)
    with pytest.raises(ZeroDivisionError):
        FUNCTIONS.group_by_owner([b"key"], [], [], 1)


def ends_of(items: list[bytes]) -> "array[int]":
    return array("q", accumulate(map(len, items), initial=0))


@compiled_only
@given(st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=40))), st.integers(1, 300))
def test_rows_of_partitions_are_the_same(pairs: list[tuple[bytes, bytes]], count: int) -> None:
    keys, stored = [key for key, _ in pairs], [value for _, value in pairs]
    key_column = array("B", b"".join(keys)), ends_of(keys)
    value_column = array("B", b"".join(stored)), ends_of(stored)
    packed = FUNCTIONS.pack_by_partition(*key_column, *value_column, count, hashing.HASH_SEED)
    assert packed == rows.rows_by_partition(keys, stored, count)
    assert list(packed) == sorted(packed)


@compiled_only
@given(st.lists(st.integers(-5, 50), min_size=1, max_size=5), st.lists(st.integers(-5, 50), min_size=1, max_size=5))
def test_no_row_is_read_beyond_the_columns(key_ends: list[int], value_ends: list[int]) -> None:
    data = array("B", bytes(40))
    is_sound = len(key_ends) == len(value_ends) and all(
        0 <= at <= to <= 40 for ends in (key_ends, value_ends) for at, to in pairwise([0, *ends])
    )
    try:
        FUNCTIONS.pack_by_partition(data, array("q", key_ends), data, array("q", value_ends), 3, 1)
    except ValueError:
        assert not is_sound
    else:
        assert is_sound


@compiled_only
@given(st.binary(max_size=60), st.integers(-9, 70), st.integers(-9, 70), st.integers(-9, 2**40), st.binary(max_size=5))
def test_no_item_is_read_beyond_the_bytes(data: bytes, sizes: int, begin: int, many: int, prefix: bytes) -> None:
    try:
        items = FUNCTIONS.split_rows(data, sizes, begin, many, prefix)
    except ValueError:
        return
    assert b"".join(item[len(prefix) :] for item in items) in data


@compiled_only
@pytest.mark.parametrize("wrong", ["text", None, 5, bytearray(b"key")])
def test_what_is_no_bytes_is_refused(wrong: Any) -> None:
    calls: list[Callable[[], object]] = [
        lambda: FUNCTIONS.partition_of(wrong, 271),
        lambda: FUNCTIONS.partitions_of([wrong], 271, 1),
        lambda: FUNCTIONS.pack_rows([wrong], [b""]),
        lambda: FUNCTIONS.sizes_of([wrong]),
        lambda: FUNCTIONS.group_by_owner([wrong], [], [0], 1),
        lambda: FUNCTIONS.split_rows(wrong, 0, 0, 0, b""),
        lambda: FUNCTIONS.sizes_in(wrong),
        lambda: FUNCTIONS.page_of_entries({b"key": wrong}, 99),
        lambda: FUNCTIONS.next_rows({b"key": wrong}, [b"key"], 9, 9, 9),
        lambda: FUNCTIONS.next_rows({b"key": b"value"}, [wrong], 9, 9, 9),
        lambda: FUNCTIONS.greatest_head(wrong, 8),
        lambda: FUNCTIONS.add_rows({}, wrong),
        lambda: FUNCTIONS.add_rows({b"key": wrong}, rows.pack_rows([b"key"], [b"value"])),
        lambda: FUNCTIONS.keys_to_data([object()], lambda key: wrong),
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ZeroDivisionError):
        FUNCTIONS.partitions_of([b"key"], 0, 1)
    with pytest.raises(ZeroDivisionError):
        FUNCTIONS.partition_of(b"key", 0)


@compiled_only
def test_a_list_that_changes_meanwhile_does_no_harm() -> None:
    keys: list[Any] = [object() for _ in range(1_000)]

    def other(key: object) -> bytes:
        keys.clear()
        return b"data"

    assert FUNCTIONS.keys_to_data(keys, other) == [b"data"] * 1_000


@compiled_only
def test_nothing_is_kept() -> None:
    texts: list[Any] = [f"key {number}" * 9 for number in range(300)] + ["\xe9", 5, 2**70, b"bytes", None, 1.5]
    counted = texts[:300]  # what nothing else holds
    before = [sys.getrefcount(text) for text in counted]

    def once() -> None:
        keys = values.keys_to_data(texts[:302])
        stored = values.values_to_data(texts)
        values.values_from_data(stored)
        values.entries_from_data(texts[:302], [*stored[:301], None])
        hashing.partitions_of(keys, 271)
        hashing.partition_of(keys[0], 271)
        packed = rows.pack_rows(stored, stored)
        rows.unpack_rows(packed, 0, b"stamp")
        rows.without_prefixes([*stored, None], 3)
        grouping.put_at([None] * 302, list(range(302)), keys)
        grouping.group_by_owner(keys, keys, [0, 1, -3])
        copying.next_rows(dict(zip(stored, stored, strict=True)), stored, 100, 10_000)
        packing.page_of_entries(dict(zip(stored, stored, strict=True)), 10_000_000)
        octets, ends = array("B", b"".join(stored)), ends_of(stored)
        FUNCTIONS.pack_by_partition(octets, ends, octets, ends, 271, 1)
        for broken in ([b"\xff\xff\xff\xf5\0\0\0\1\xff"], [b"no type"]):
            with pytest.raises(errors.CorruptDataError):
                values.values_from_data(broken)

    once()
    tracemalloc.start()
    try:
        once()
        held = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            once()
        assert tracemalloc.get_traced_memory()[0] - held < 10_000
    finally:
        tracemalloc.stop()
    assert [sys.getrefcount(text) for text in counted] == before


def test_a_package_that_does_not_fit_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "phalanx_native", SimpleNamespace(INTERFACE=INTERFACE + 1))
    with pytest.warns(UserWarning, match="install the two of one release"):
        assert find_native() is None


def test_all_works_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "phalanx_native", None)
    assert find_native() is None


@compiled_only
def test_the_environment_can_leave_it_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "phalanx_native")
    monkeypatch.setenv("PHALANX_PURE", "1")
    assert find_native() is None
    monkeypatch.delenv("PHALANX_PURE")
    assert find_native() is not None
