"""Reads MessagePack rows as columns: each step reads one field of *all* rows of a page with a few numpy gathers.

Rows that one program wrote have the same field names in the same order (their *layout*); only the widths of the values
differ. So a position per row walks over the page: compare the name, look at the tag, take the value, step on. A row that
does not fit (another layout, a nested value, a type that needs care) is marked and left to `fallback`, which takes it row
by row and says precisely what is wrong if something is. Nothing is guessed: a row counts as read only if its walk ended
exactly at its end.

Reading a number of any width from any place is one gather over overlapping views of the page: element `i` of such a view
is the number whose first byte is byte `i`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx.grid.messagepack import EXT_DATE, EXT_DATETIME, EXT_DECIMAL, EXT_NAIVE_DATETIME
from phalanx.spark.arrow import Array, Mask, Vector, from_numpy, null_where, runs
from phalanx.spark.cells import MAP, encode_name, length_header

_PAD = 32
"""Zero bytes behind the page, so that a gather at its very end stays inside."""


def _table(pairs: Sequence[tuple[int, int]]) -> Vector:
    table = np.zeros(256, np.int64)
    for tag, value in pairs:
        table[tag] = value
    return table


# Integers: bytes behind the tag, and how they are read.
_INT_WIDTH = _table([(0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8), (0xD0, 1), (0xD1, 2), (0xD2, 4), (0xD3, 8)])
_INT_SHIFT = (8 - _INT_WIDTH) * 8 % 64
_NO_INT, _UNSIGNED, _SIGNED, _TINY = 0, 1, 2, 3
_INT_KIND = _table([(tag, _UNSIGNED) for tag in range(0xCC, 0xD0)] + [(tag, _SIGNED) for tag in range(0xD0, 0xD4)])
_INT_KIND[:0x80] = _INT_KIND[0xE0:] = _TINY
# Strings, binaries and extensions: width of the length field; the length itself where it is part of the tag.
_TEXT_WIDTH = _table([(0xD9, 1), (0xDA, 2), (0xDB, 4)])
_BINARY_WIDTH = _table([(0xC4, 1), (0xC5, 2), (0xC6, 4)])
_EXTENSION_WIDTH = _table([(0xC7, 1), (0xC8, 2), (0xC9, 4)])
_EXTENSION_LENGTH = _table([(0xD4, 1), (0xD5, 2), (0xD6, 4), (0xD7, 8), (0xD8, 16)])
_IS_TEXT = (_TEXT_WIDTH > 0) | ((np.arange(256) & 0xE0) == 0xA0)
_IS_BINARY = _BINARY_WIDTH > 0
_IS_EXTENSION = (_EXTENSION_WIDTH > 0) | (_EXTENSION_LENGTH > 0)
# Scalars of a fixed size, to step over a field that nobody asked for.
_FIXED_SIZE = _INT_WIDTH + _table([(0xCA, 4), (0xCB, 8)])
_IS_FIXED = (_INT_KIND > 0) | (_table([(tag, 1) for tag in (0xC0, 0xC2, 0xC3, 0xCA, 0xCB)]) > 0)


class Page:
    """Many serialised values side by side, and views of them."""

    def __init__(self, values: Sequence[bytes]) -> None:
        data = b"".join(values) + bytes(_PAD)
        self.data = data
        self.bytes: Vector = np.frombuffer(data, np.uint8)
        sizes = np.fromiter(map(len, values), np.int64, len(values))
        self.ends: Vector = np.cumsum(sizes)
        self.starts: Vector = self.ends - sizes
        self.last = len(data) - _PAD + 1  # beyond every row's end, so that a row cut short never ends where it should
        self._views: dict[str, Vector] = {}

    def view(self, kind: str) -> Vector:
        """Numbers of a kind (such as `>i8`) starting at every byte."""
        if kind not in self._views:
            dtype = np.dtype(kind)
            self._views[kind] = np.ndarray((len(self.data) - dtype.itemsize + 1,), dtype, self.data, 0, (1,))
        return self._views[kind]


class Walk:
    """A position in each row of a page, and whether the row has fitted so far."""

    def __init__(self, page: Page, rows: Vector) -> None:
        self.page = page
        self.at: Vector = page.starts[rows]
        self.ends: Vector = page.ends[rows]
        self.fits: Mask = np.ones(len(rows), np.bool_)

    def step(self, by: int | Vector) -> None:
        """Move on. Rows that do not fit any more may claim any length: they stay inside the page."""
        self.at = np.minimum(self.at + by, self.page.last)

    def expect(self, literal: bytes) -> None:
        """Every row has these bytes here."""
        words = self.page.view(">u8")
        for start in range(0, len(literal), 8):
            part = literal[start : start + 8]
            unused = np.uint64(8 * (8 - len(part)))
            wanted = np.uint64(int.from_bytes(part, "big"))
            self.fits &= (words[np.minimum(self.at + start, self.page.last)] >> unused) == wanted
        self.step(len(literal))

    def tags(self) -> Vector:
        """The tag of each row's next value; the walk stands behind it then."""
        tags = self.page.bytes[self.at]
        self.step(1)
        return tags

    def lengths(self, widths: Vector, inside: Vector) -> Vector:
        """Numbers of so many bytes each (up to 4), or what was inside the tag; the walk stands behind them then."""
        raw = self.page.view(">u4")[self.at] >> ((4 - widths) * 8 % 32).astype(np.uint32)
        self.step(widths)
        return np.where(widths > 0, raw.astype(np.int64), inside)

    def finish(self) -> Mask:
        """Which rows were walked to their very end."""
        done: Mask = self.fits & (self.at == self.ends)
        return done


Finish = Callable[[Mask | None], Array]
"""Makes the Arrow array of a column from the rows that fit (None: all of them)."""


def _chosen(values: Vector, good: Mask | None) -> Vector:
    return values if good is None else values[good]


def _numbers(kind: Any, values: Vector, nulls: Mask) -> Finish:
    return lambda good: from_numpy(_chosen(values, good), kind, _chosen(nulls, good))


def integers_at(page: Page, tags: Vector, at: Vector) -> tuple[Vector, Mask]:
    """The integers with these tags and the payload at these places, and whether each is one that a long can hold."""
    kinds = _INT_KIND[tags]
    shifts = _INT_SHIFT[tags]
    raw = page.view(">i8")[at].astype(np.int64)
    values = np.where(kinds == _TINY, tags.view(np.int8), raw >> shifts)
    unsigned = kinds == _UNSIGNED
    if unsigned.any():
        values = np.where(unsigned, (raw.view(np.uint64) >> shifts.view(np.uint64)).view(np.int64), values)
        unsigned &= values < 0
        return values, (kinds != _NO_INT) & ~unsigned
    return values, kinds != _NO_INT


def _read_integer(walk: Walk, kind: Any) -> Finish:
    tags = walk.tags()
    values, fits = integers_at(walk.page, tags, walk.at)
    walk.step(_INT_WIDTH[tags])
    if kind.bit_width < 64:
        bound = 1 << (kind.bit_width - 1)
        fits &= (values >= -bound) & (values < bound)
    nulls = tags == 0xC0
    walk.fits &= fits | nulls
    return _numbers(kind, values.astype(kind.to_pandas_dtype()), nulls)


def _read_floating(walk: Walk, kind: Any) -> Finish:
    tags, page = walk.tags(), walk.page
    nulls = tags == 0xC0
    fits = (tags == 0xCB) | nulls
    values = page.view(">f8")[walk.at]
    if not fits.all():
        # Python programs store whole numbers as integers, and other languages have floats of four bytes.
        integers, whole = integers_at(page, tags, walk.at)
        single = tags == 0xCA
        values = np.where(whole, integers, np.where(single, page.view(">f4")[walk.at], values))
        fits |= whole | single
    walk.step(_FIXED_SIZE[tags])
    walk.fits &= fits
    with np.errstate(over="ignore", invalid="ignore"):
        return _numbers(kind, values.astype(kind.to_pandas_dtype()), nulls)


def _read_boolean(walk: Walk, kind: Any) -> Finish:
    tags = walk.tags()
    nulls = tags == 0xC0
    walk.fits &= nulls | (tags == 0xC2) | (tags == 0xC3)
    return _numbers(kind, tags == 0xC3, nulls)


def _read_nothing(walk: Walk, kind: Any) -> Finish:
    walk.fits &= walk.tags() == 0xC0
    return lambda good: pa.nulls(len(walk.at) if good is None else int(good.sum()), kind)


def _runs(walk: Walk, sizes: Vector, nulls: Mask, kind: Any) -> Finish:
    """The next so many bytes of each row, cast to the type."""
    starts = walk.at
    walk.step(sizes)

    def finish(good: Mask | None) -> Array:
        places = _chosen(starts, good)
        found = runs(walk.page.data, places, places + _chosen(sizes, good))
        if nulls.any():
            found = null_where(_chosen(nulls, good), found)
        return found.cast(pa.string()).cast(kind) if pa.types.is_decimal(kind) else found.cast(kind)

    return finish


def _read_string(walk: Walk, kind: Any) -> Finish:
    tags = walk.tags()
    nulls = tags == 0xC0
    walk.fits &= _IS_TEXT[tags] | nulls
    return _runs(walk, walk.lengths(_TEXT_WIDTH[tags], np.where(nulls, 0, tags & 0x1F)), nulls, kind)


def _read_binary(walk: Walk, kind: Any) -> Finish:
    tags = walk.tags()
    nulls = tags == 0xC0
    walk.fits &= _IS_BINARY[tags] | nulls
    return _runs(walk, walk.lengths(_BINARY_WIDTH[tags], np.zeros(len(tags), np.int64)), nulls, kind)


def _read_decimal(walk: Walk, kind: Any) -> Finish:
    tags = walk.tags()
    nulls = tags == 0xC0
    sizes = walk.lengths(_EXTENSION_WIDTH[tags], _EXTENSION_LENGTH[tags])
    walk.fits &= nulls | (_IS_EXTENSION[tags] & (walk.page.bytes[walk.at] == EXT_DECIMAL))
    walk.step(np.where(nulls, 0, 1))
    return _runs(walk, sizes, nulls, kind)


def _read_date(walk: Walk, kind: Any) -> Finish:
    return _fixed_extension(walk, 0xD600 | EXT_DATE, ">i4", kind)


def _read_timestamp(walk: Walk, kind: Any) -> Finish:
    return _fixed_extension(walk, 0xD700 | (EXT_NAIVE_DATETIME if kind.tz is None else EXT_DATETIME), ">i8", kind)


def _fixed_extension(walk: Walk, tag_and_code: int, form: str, kind: Any) -> Finish:
    number = np.dtype(form)
    nulls = walk.page.bytes[walk.at] == 0xC0
    walk.fits &= nulls | (walk.page.view(">u2")[walk.at] == tag_and_code)
    values = walk.page.view(form)[np.minimum(walk.at + 2, walk.page.last)].astype(number.newbyteorder("="))
    walk.step(np.where(nulls, 1, 2 + number.itemsize))

    return _numbers(kind, values, nulls)


Reader = Callable[[Walk, Any], Finish]
_READERS: tuple[tuple[Callable[[Any], bool], Reader], ...] = (
    (pa.types.is_null, _read_nothing),
    (pa.types.is_boolean, _read_boolean),
    (pa.types.is_integer, _read_integer),
    (pa.types.is_floating, _read_floating),
    (pa.types.is_string, _read_string),
    (pa.types.is_binary, _read_binary),
    (pa.types.is_date, _read_date),
    (pa.types.is_timestamp, _read_timestamp),
    (pa.types.is_decimal, _read_decimal),
)


def find_reader(kind: Any) -> Reader | None:
    """How to read values of an Arrow type as a column; None if that is done row by row."""
    return next((read for is_kind, read in _READERS if is_kind(kind)), None)


def _skip(walk: Walk) -> None:
    """Step over a field that nobody asked for. Rows in which it is nested do not fit."""
    tags = walk.tags()
    texts, extensions = _IS_TEXT[tags], _IS_EXTENSION[tags]
    walk.fits &= _IS_FIXED[tags] | texts | _IS_BINARY[tags] | extensions
    widths = _TEXT_WIDTH[tags] + _BINARY_WIDTH[tags] + _EXTENSION_WIDTH[tags]
    inside = np.where(texts, tags & 0x1F, _FIXED_SIZE[tags] + _EXTENSION_LENGTH[tags])
    walk.step(walk.lengths(widths, inside) + extensions)


def read_layout(
    page: Page, rows: Vector, prefix: bytes, layout: Sequence[str], wanted: Sequence[Any]
) -> tuple[Mask, dict[str, Array]]:
    """Which of the rows are maps of this layout, and the wanted fields of those rows by name."""
    fields = {field.name: field for field in wanted}
    literals = [encode_name(name) for name in layout] + [b""]
    literals[0] = prefix + length_header(len(layout), MAP) + literals[0]
    good, columns = read_fields(page, rows, literals, [fields.get(name) for name in layout])
    for name in fields.keys() - columns.keys():
        columns[name] = pa.nulls(int(good.sum()), fields[name].type)
    return good, columns


def read_fields(
    page: Page, rows: Vector, literals: Sequence[bytes], fields: Sequence[Any]
) -> tuple[Mask, dict[str, Array]]:
    """Which of the rows are these literals with a value behind each but the last, and the values of those rows by name.

    A field that is None is stepped over.
    """
    walk = Walk(page, rows)
    finishes: dict[str, Finish] = {}
    for literal, field in zip(literals, fields, strict=False):
        walk.expect(literal)
        if field is None:
            _skip(walk)
            continue
        read = find_reader(field.type)
        if read is None:
            return np.zeros(len(rows), np.bool_), {}
        finishes[field.name] = read(walk, field.type)
    walk.expect(literals[-1])
    good = walk.finish()
    try:
        return good, {name: finish(None if good.all() else good) for name, finish in finishes.items()}
    except pa.ArrowInvalid:  # such as a Decimal with more digits than the column has
        return np.zeros(len(rows), np.bool_), {}
