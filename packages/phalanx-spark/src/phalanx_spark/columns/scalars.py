"""Reads scalar values of one Arrow type, of all rows of a walk at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx.codec.messagepack import EXT_DATE, EXT_DATETIME, EXT_DECIMAL, EXT_NAIVE_DATETIME
from phalanx_spark.columns.arrow import Array, Mask, Vector, from_numpy, from_slices, null_where
from phalanx_spark.columns.native import NATIVE
from phalanx_spark.columns.pages import (
    BINARY_WIDTH,
    EXTENSION_LENGTH,
    EXTENSION_WIDTH,
    FIXED_SIZE,
    INT_KIND,
    INT_SHIFT,
    INT_WIDTH,
    IS_BINARY,
    IS_EXTENSION,
    IS_TEXT,
    NO_INT,
    TEXT_WIDTH,
    TINY,
    UNSIGNED,
    Finish,
    PageWalk,
    ScannedPage,
    chosen,
)


def _numbers(kind: Any, values: Vector, nulls: Mask) -> Finish:
    return lambda good: from_numpy(chosen(values, good), kind, chosen(nulls, good))


def integers_at(page: ScannedPage, tags: Vector, at: Vector) -> tuple[Vector, Mask]:
    """Return the integers with these tags and with their payload at these places, and whether a long can hold each."""
    if NATIVE is not None:
        found, fits = np.empty(len(at), np.int64), np.empty(len(at), np.bool_)
        NATIVE.read_integers(page.bytes, tags, at, found, fits.view(np.uint8))
        return found, fits
    kinds = INT_KIND[tags]
    shifts = INT_SHIFT[tags]
    raw = page.view(">i8")[at].astype(np.int64)
    values = np.where(kinds == TINY, tags.view(np.int8), raw >> shifts)
    unsigned = kinds == UNSIGNED
    if unsigned.any():
        values = np.where(unsigned, (raw.view(np.uint64) >> shifts.view(np.uint64)).view(np.int64), values)
        unsigned &= values < 0
        return values, (kinds != NO_INT) & ~unsigned
    return values, kinds != NO_INT


def _read_integer(walk: PageWalk, kind: Any) -> Finish:
    tags = walk.tags()
    values, fits = integers_at(walk.page, tags, walk.at)
    walk.step(INT_WIDTH[tags], 8)
    if kind.bit_width < 64:
        bound = 1 << (kind.bit_width - 1)
        fits &= (values >= -bound) & (values < bound)
    nulls = tags == 0xC0
    walk.fits &= fits | nulls
    return _numbers(kind, values.astype(kind.to_pandas_dtype(), copy=False), nulls)


def _read_floating(walk: PageWalk, kind: Any) -> Finish:
    tags, page = walk.tags(), walk.page
    nulls = tags == 0xC0
    fits = (tags == 0xCB) | nulls
    values = page.view(">f8")[walk.at]
    if not fits.all():
        # Python programs store whole numbers as integers, and other languages have floats of four bytes.
        integers, whole = integers_at(page, tags, walk.at)
        single = tags == 0xCA
        numbers = integers.astype(np.float64)
        values = np.where(whole, numbers, np.where(single, page.view(">f4")[walk.at], values))
        is_exact = numbers < 2.0**63  # a number that is rounded up to that is too large for a long
        is_exact &= np.where(is_exact, numbers, 0).astype(np.int64) == integers
        fits |= (whole & is_exact) | single
    walk.step(FIXED_SIZE[tags], 8)
    walk.fits &= fits
    if kind.bit_width < 64:
        walk.fits &= nulls | are_exact(values, kind)
    with np.errstate(over="ignore", invalid="ignore"):
        return _numbers(kind, values.astype(kind.to_pandas_dtype(), copy=False), nulls)


def are_exact(values: Vector, kind: Any) -> Mask:
    """Return for each number whether a narrower floating type has it exactly; every type has NaN."""
    with np.errstate(over="ignore", invalid="ignore"):
        exact: Mask = (values.astype(kind.to_pandas_dtype()) == values) | np.isnan(values)
    return exact


def _read_boolean(walk: PageWalk, kind: Any) -> Finish:
    tags = walk.tags()
    nulls = tags == 0xC0
    walk.fits &= nulls | (tags == 0xC2) | (tags == 0xC3)
    return _numbers(kind, tags == 0xC3, nulls)


def _read_nothing(walk: PageWalk, kind: Any) -> Finish:
    walk.fits &= walk.tags() == 0xC0
    return lambda good: pa.nulls(len(walk.at) if good is None else int(good.sum()), kind)


def _read_bytes(walk: PageWalk, sizes: Vector, nulls: Mask, kind: Any) -> Finish:
    """Read the next `sizes` bytes of each row, and cast them to the type."""
    starts = walk.at
    walk.step(sizes)

    def finish(good: Mask | None) -> Array:
        places = chosen(starts, good)
        found = from_slices(walk.page.data, places, places + chosen(sizes, good))
        if nulls.any():
            found = null_where(chosen(nulls, good), found)
        return found.cast(pa.string()).cast(kind) if pa.types.is_decimal(kind) else found.cast(kind)

    return finish


def _read_string(walk: PageWalk, kind: Any) -> Finish:
    tags = walk.tags()
    nulls = tags == 0xC0
    walk.fits &= IS_TEXT[tags] | nulls
    return _read_bytes(walk, walk.lengths(TEXT_WIDTH[tags], np.where(nulls, 0, tags & 0x1F)), nulls, kind)


def _read_binary(walk: PageWalk, kind: Any) -> Finish:
    tags = walk.tags()
    nulls = tags == 0xC0
    walk.fits &= IS_BINARY[tags] | nulls
    return _read_bytes(walk, walk.lengths(BINARY_WIDTH[tags], np.zeros(len(tags), np.int64)), nulls, kind)


def _read_decimal(walk: PageWalk, kind: Any) -> Finish:
    tags = walk.tags()
    nulls = tags == 0xC0
    sizes = walk.lengths(EXTENSION_WIDTH[tags], EXTENSION_LENGTH[tags])
    walk.fits &= nulls | (IS_EXTENSION[tags] & (walk.page.bytes[walk.at] == EXT_DECIMAL))
    walk.step(np.where(nulls, 0, 1), 1)
    return _read_bytes(walk, sizes, nulls, kind)


def _read_date(walk: PageWalk, kind: Any) -> Finish:
    return _fixed_extension(walk, 0xD600 | EXT_DATE, ">i4", kind)


def _read_timestamp(walk: PageWalk, kind: Any) -> Finish:
    return _fixed_extension(walk, 0xD700 | (EXT_NAIVE_DATETIME if kind.tz is None else EXT_DATETIME), ">i8", kind)


def _fixed_extension(walk: PageWalk, tag_and_code: int, form: str, kind: Any) -> Finish:
    number = np.dtype(form)
    nulls = walk.page.bytes[walk.at] == 0xC0
    walk.fits &= nulls | (walk.page.view(">u2")[walk.at] == tag_and_code)
    values = walk.page.view(form)[walk.at + 2].astype(number.newbyteorder("="))
    walk.step(np.where(nulls, 1, 2 + number.itemsize), 2 + number.itemsize)

    return _numbers(kind, values, nulls)


Reader = Callable[[PageWalk, Any], Finish]
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


def find_scalar_reader(kind: Any) -> Reader | None:
    """Return the reader of values of an Arrow type; None if it is a nested one."""
    return next((read for is_kind, read in _READERS if is_kind(kind)), None)
