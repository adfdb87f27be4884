"""Reads MessagePack rows as columns: each step reads one field of *all* rows of a page with a few numpy gathers.

Rows that one program wrote have the same field names in the same order: their *layout*. A row that does not fit (another
layout, a value that needs care) is left to `fallback`, which takes it row by row and says precisely what is wrong if
something is. Nothing is guessed: a row counts as read only if its walk ended exactly at its end.

Nested values are read the same way: the fields of a struct one after the other, the elements of arrays and maps in
rounds, of which the n-th reads the n-th element of every row that has so many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx_spark.columns import cells
from phalanx_spark.columns.arrow import Array, Mask, Vector, from_numpy
from phalanx_spark.columns.pages import (
    ARRAY_WIDTH,
    IS_ARRAY,
    IS_CONTAINER,
    IS_EXTENSION,
    IS_MAP,
    IS_VALUE,
    LENGTH_INSIDE,
    LENGTH_WIDTH,
    MAP_WIDTH,
    VALUES_EACH,
    Finish,
    PageWalk,
    ScannedPage,
    chosen,
)
from phalanx_spark.columns.scalars import Reader, find_scalar_reader

_MAX_ROUNDS = 256
"""Rows with more elements in one array or map, or more values in a field to step over, are read row by row."""
_MIN_ROWS = 8
"""When fewer rows than this have further elements, these are read row by row, too: a round costs the same for one row."""


def read_layout(
    page: ScannedPage, rows: Vector, prefix: bytes, layout: Sequence[str], wanted: Sequence[Any]
) -> tuple[Mask, dict[str, Array]]:
    """Read the rows that are maps of this layout. Return which rows these are, and their wanted fields by name."""
    fields = {field.name: field for field in wanted}
    literals = _names(prefix, layout)
    good, columns = read_fields(page, rows, literals, [fields.get(name) for name in layout])
    for name in fields.keys() - columns.keys():
        columns[name] = pa.nulls(int(good.sum()), fields[name].type)
    return good, columns


def read_fields(
    page: ScannedPage, rows: Vector, literals: Sequence[bytes], fields: Sequence[Any]
) -> tuple[Mask, dict[str, Array]]:
    """Read the rows that consist of these literals, with a value behind each literal but the last.

    Return which rows these are, and their values by the name of the field. The value of a field that is None is
    skipped.
    """
    walk = PageWalk(page, page.starts[rows])
    finishes = _read_values(walk, literals, fields)
    good = walk.fits & (walk.at == page.ends[rows])
    try:
        return good, {name: finish(None if good.all() else good) for name, finish in finishes.items()}
    except pa.ArrowInvalid:  # such as a Decimal with more digits than the column has, or a map's key that is nil
        return np.zeros(len(rows), np.bool_), {}


def find_reader(kind: Any) -> Reader:
    """Return the reader of values of an Arrow type."""
    if pa.types.is_struct(kind):
        return _read_struct
    if pa.types.is_map(kind):
        return _read_map
    return find_scalar_reader(kind) or _read_list


def _names(prefix: bytes, names: Sequence[str]) -> list[bytes]:
    """Return the bytes before each value of a map with these names, and behind the last."""
    literals = [cells.encode_name(name) for name in names] + [b""]
    literals[0] = prefix + cells.length_header(len(names), cells.MAP) + literals[0]
    return literals


def _read_values(walk: PageWalk, literals: Sequence[bytes], fields: Sequence[Any]) -> dict[str, Finish]:
    finishes: dict[str, Finish] = {}
    for literal, field in zip(literals, fields, strict=False):
        walk.expect(literal)
        if field is None:
            _skip_value(walk)
        else:
            finishes[field.name] = find_reader(field.type)(walk, field.type)
    walk.expect(literals[-1])
    return finishes


def _skip_value(walk: PageWalk) -> None:
    """Skip a value of any kind, with the values inside. Rows in which it has too many values inside do not fit."""
    left = _skip_head(walk)
    for _ in range(_MAX_ROUNDS):
        rows = np.flatnonzero((left > 0) & walk.fits)
        if len(rows) == 0:
            return
        part = walk.fork(rows)
        left[rows] += _skip_head(part) - 1
        walk.rejoin(rows, part)
    walk.fits &= left <= 0


def _skip_head(walk: PageWalk) -> Vector:
    """Skip one value, but not those inside. Return how many these are."""
    tags = walk.tags()
    walk.fits &= IS_VALUE[tags]
    lengths = walk.lengths(LENGTH_WIDTH[tags], LENGTH_INSIDE[tags])
    containers = IS_CONTAINER[tags]
    if not containers.any():
        walk.step(lengths + IS_EXTENSION[tags])
        return np.zeros(len(tags), np.int64)
    walk.step(np.where(containers, 0, lengths + IS_EXTENSION[tags]))
    return lengths * VALUES_EACH[tags]


def _read_struct(walk: PageWalk, kind: Any) -> Finish:
    """Read maps that have the struct's fields in their order; maps with another order do not fit."""
    nulls = walk.page.bytes[walk.at] == 0xC0
    present = np.flatnonzero(~nulls)
    part = walk.fork(present)
    finishes = _read_values(part, _names(b"", [field.name for field in kind]), list(kind))
    walk.step(nulls, 1)
    walk.rejoin(present, part)

    def finish(good: Mask | None) -> Array:
        good_part = None if good is None else good[present]
        children = [finishes[field.name](good_part) for field in kind]
        count = len(present) if good_part is None else int(good_part.sum())
        structs = pa.Array.from_buffers(kind, count, [None], children=children)
        return _with_nulls(structs, chosen(nulls, good))

    return finish


def _with_nulls(values: Array, nulls: Mask) -> Array:
    """Put the values in the places that are not null."""
    if not nulls.any():
        return values
    return values.take(from_numpy((np.cumsum(~nulls) - 1).astype(np.int32), pa.int32(), nulls))


def _read_list(walk: PageWalk, kind: Any) -> Finish:
    nulls, counts = _read_counts(walk, IS_ARRAY, ARRAY_WIDTH)
    finish_elements = _read_rounds(walk, counts, [kind.value_type])

    def finish(good: Mask | None) -> Array:
        (elements,) = finish_elements(good)
        offsets, mask = _list_offsets(chosen(counts, good), chosen(nulls, good))
        return pa.ListArray.from_arrays(offsets, elements, type=kind, mask=mask)

    return finish


def _read_map(walk: PageWalk, kind: Any) -> Finish:
    nulls, counts = _read_counts(walk, IS_MAP, MAP_WIDTH)
    finish_elements = _read_rounds(walk, counts, [kind.key_type, kind.item_type])

    def finish(good: Mask | None) -> Array:
        keys, items = finish_elements(good)
        offsets, mask = _list_offsets(chosen(counts, good), chosen(nulls, good))
        found = pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask)
        found.validate(full=True)  # a key must not be nil
        return found

    return finish


def _read_counts(walk: PageWalk, is_container: Mask, widths: Vector) -> tuple[Mask, Vector]:
    """Return which rows are nil, and the number of elements of each container (0 where it does not fit)."""
    tags = walk.tags()
    nulls = tags == 0xC0
    walk.fits &= nulls | is_container[tags]
    counts = walk.lengths(widths[tags], np.where(nulls, 0, tags & 0x0F))
    walk.fits &= counts <= _MAX_ROUNDS
    return nulls, np.where(walk.fits, counts, 0)


def _list_offsets(counts: Vector, nulls: Mask) -> tuple[Array, Array | None]:
    """Return the offsets of lists of these lengths, and their mask if some are null."""
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return from_numpy(offsets, pa.int32()), from_numpy(nulls, pa.bool_()) if nulls.any() else None


def _read_rounds(walk: PageWalk, counts: Vector, kinds: Sequence[Any]) -> Any:
    """Read the elements of all rows, each of one value of every kind. Return a function that makes an array of each
    kind.
    """
    rounds: list[tuple[Vector, list[Finish]]] = []
    rows = np.flatnonzero(counts > 0)
    while len(rows):
        if rounds and len(rows) < _MIN_ROWS:
            walk.fits[rows] = False
            break
        part = walk.fork(rows)
        rounds.append((rows, [find_reader(kind)(part, kind) for kind in kinds]))
        walk.rejoin(rows, part)
        rows = rows[counts[rows] > len(rounds)]

    def finish(good: Mask | None) -> list[Array]:
        firsts = np.cumsum(np.where(True if good is None else good, counts, 0)) - counts
        places = [
            chosen(firsts[rows] + number, None if good is None else good[rows])
            for number, (rows, _) in enumerate(rounds)
        ]
        if not places:
            return [pa.nulls(0, kind) for kind in kinds]
        order = np.argsort(np.concatenate(places), kind="stable").astype(np.int32)
        found = []
        for index in range(len(kinds)):
            parts = [reads[index](None if good is None else good[rows]) for rows, reads in rounds]
            found.append(pa.concat_arrays(parts).take(from_numpy(order, pa.int32())))
        return found

    return finish
