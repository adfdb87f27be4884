"""Many serialised values side by side, and a walk through all of them at once.

The rows of a page mostly look alike; only the widths of their values differ. So a position per row walks over the page:
look at the tag, take the value, step on. Reading a number of any width from any place is one gather over overlapping
views of the page: element `i` of such a view is the number whose first byte is byte `i`.

A row that is not as expected is marked as one that does not fit and walks on with the others, its position kept inside
the page, so that nothing needs to be checked before it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from phalanx_spark.columns.arrow import Array, Mask, Vector
from phalanx_spark.columns.native import NATIVE

_SPARE = 256
"""How many bytes positions can go behind the last row before they are set back: rows that do not fit go anywhere."""
_PAD = _SPARE + 32
"""Zero bytes behind the page, so that a gather from there stays inside."""


def _table(pairs: Sequence[tuple[int, int]]) -> Vector:
    table = np.zeros(256, np.int64)
    for tag, value in pairs:
        table[tag] = value
    return table


# Integers: bytes behind the tag, and how they are read.
INT_WIDTH = _table([(0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8), (0xD0, 1), (0xD1, 2), (0xD2, 4), (0xD3, 8)])
INT_SHIFT = (8 - INT_WIDTH) * 8 % 64
NO_INT, UNSIGNED, SIGNED, TINY = 0, 1, 2, 3
INT_KIND = _table([(tag, UNSIGNED) for tag in range(0xCC, 0xD0)] + [(tag, SIGNED) for tag in range(0xD0, 0xD4)])
INT_KIND[:0x80] = INT_KIND[0xE0:] = TINY
# Strings, binaries and extensions: width of the length field; the length itself where it is part of the tag.
TEXT_WIDTH = _table([(0xD9, 1), (0xDA, 2), (0xDB, 4)])
BINARY_WIDTH = _table([(0xC4, 1), (0xC5, 2), (0xC6, 4)])
EXTENSION_WIDTH = _table([(0xC7, 1), (0xC8, 2), (0xC9, 4)])
EXTENSION_LENGTH = _table([(0xD4, 1), (0xD5, 2), (0xD6, 4), (0xD7, 8), (0xD8, 16)])
IS_TEXT = (TEXT_WIDTH > 0) | ((np.arange(256) & 0xE0) == 0xA0)
IS_BINARY = BINARY_WIDTH > 0
IS_EXTENSION = (EXTENSION_WIDTH > 0) | (EXTENSION_LENGTH > 0)
# Scalars of a fixed size.
FIXED_SIZE = INT_WIDTH + _table([(0xCA, 4), (0xCB, 8)])
IS_FIXED = (INT_KIND > 0) | (_table([(tag, 1) for tag in (0xC0, 0xC2, 0xC3, 0xCA, 0xCB)]) > 0)
# Containers: width of the field with the number of elements.
ARRAY_WIDTH = _table([(0xDC, 2), (0xDD, 4)])
MAP_WIDTH = _table([(0xDE, 2), (0xDF, 4)])
IS_ARRAY = (ARRAY_WIDTH > 0) | ((np.arange(256) & 0xF0) == 0x90)
IS_MAP = (MAP_WIDTH > 0) | ((np.arange(256) & 0xF0) == 0x80)
IS_CONTAINER = IS_ARRAY | IS_MAP
# Values of any kind that are skipped: whether a tag begins one, the width of its length field, and its length if it has none.
IS_VALUE = IS_FIXED | IS_TEXT | IS_BINARY | IS_EXTENSION | IS_CONTAINER
LENGTH_WIDTH = TEXT_WIDTH + BINARY_WIDTH + EXTENSION_WIDTH + ARRAY_WIDTH + MAP_WIDTH
LENGTH_INSIDE = np.where(IS_TEXT, np.arange(256) & 0x1F, FIXED_SIZE + EXTENSION_LENGTH)
LENGTH_INSIDE[IS_CONTAINER] = np.arange(256)[IS_CONTAINER] & 0x0F
VALUES_EACH = np.where(IS_ARRAY, 1, np.where(IS_MAP, 2, 0))
"""By the first byte of a container: the number of values in each of its elements."""


class ScannedPage:
    """Many serialised values side by side, and views of them."""

    def __init__(self, values: Sequence[bytes]) -> None:
        self._lay_out(list(values), np.fromiter(map(len, values), np.int64, len(values)), 0)

    @classmethod
    def from_packed(cls, parts: Sequence[tuple[bytes, bytes]], skip: int) -> ScannedPage:
        """Make a page of values that are side by side already: each part with their sizes, four bytes each,
        little-endian.

        `skip`: the number of bytes at the beginning of each value that do not belong to it.
        """
        page = cls.__new__(cls)
        sizes = np.frombuffer(b"".join([sizes for _, sizes in parts]), "<u4").astype(np.int64)
        page._lay_out([data for data, _ in parts], sizes, skip)
        return page

    def _lay_out(self, parts: list[bytes], sizes: Vector, skip: int) -> None:
        parts.append(bytes(_PAD))
        self.data = b"".join(parts)
        self.bytes: Vector = np.frombuffer(self.data, np.uint8)
        self.ends: Vector = np.cumsum(sizes)
        self.starts: Vector = self.ends - sizes + skip
        # Beyond every row's end, so that a row cut short never ends where it should.
        self.last = len(self.data) - _PAD + 1
        self._views: dict[str, Vector] = {}

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, row: int) -> bytes:
        return self.data[self.starts[row] : self.ends[row]]

    def select(self, rows: Vector) -> ScannedPage:
        """Return a page of some of the values, in ascending order, over the same bytes."""
        page = type(self).__new__(type(self))
        page.data, page.bytes, page.last, page._views = self.data, self.bytes, self.last, self._views
        page.starts, page.ends = self.starts[rows], self.ends[rows]
        return page

    def view(self, kind: str) -> Vector:
        """Return the numbers of a kind (such as `>i8`) that begin at every byte."""
        if kind not in self._views:
            dtype = np.dtype(kind)
            self._views[kind] = np.ndarray((len(self.data) - dtype.itemsize + 1,), dtype, self.data, 0, (1,))
        return self._views[kind]


def as_page(values: ScannedPage | Sequence[bytes]) -> ScannedPage:
    """Return the values as a page, which is made unless they are one already."""
    return values if isinstance(values, ScannedPage) else ScannedPage(values)


class PageWalk:
    """A position in each row of a page, and whether the row has fitted so far."""

    def __init__(self, page: ScannedPage, at: Vector) -> None:
        self.page = page
        self.at = at
        self.fits: Mask = np.ones(len(at), np.bool_)
        self._spare = _SPARE
        """How many bytes positions can still go before they are set back."""

    def step(self, by: int | Vector, most: int = _SPARE) -> None:
        """Move each position `by` so many bytes; `most`: the most of them, if that is known.

        A row that does not fit any more can claim any length: its position stays inside the page and the padding behind
        it.
        """
        self.at = self.at + by
        self._spare -= most
        if self._spare <= 0:
            self.at = np.minimum(self.at, self.page.last)
            self._spare = _SPARE

    def expect(self, literal: bytes) -> None:
        """Skip these bytes in every row. Rows that have other bytes there do not fit."""
        if NATIVE is not None:
            NATIVE.match_literal(self.page.bytes, self.at, literal, self.fits.view(np.uint8))
            self.step(len(literal), len(literal))
            return
        words = self.page.view(">u8")
        for start in range(0, len(literal), 8):
            part = literal[start : start + 8]
            unused = np.uint64(8 * (8 - len(part)))
            wanted = np.uint64(int.from_bytes(part, "big"))
            found = words[self.at]
            self.fits &= (found >> unused if unused else found) == wanted
            self.step(len(part), len(part))

    def tags(self) -> Vector:
        """Return the tag of each row's next value, and move behind it."""
        tags = self.page.bytes[self.at]
        self.step(1, 1)
        return tags

    def lengths(self, widths: Vector, inside: Vector) -> Vector:
        """Read a number of `widths` bytes (up to 4) from each row, and move behind it; where the width is 0, it is the
        one `inside` the tag.
        """
        raw = self.page.view(">u4")[self.at] >> ((4 - widths) * 8 % 32).astype(np.uint32)
        self.step(widths, 4)
        return np.where(widths > 0, raw.astype(np.int64), inside)

    def fork(self, rows: Vector) -> PageWalk:
        """Return another walk over some of the rows, which are given by their places among these."""
        part = PageWalk(self.page, self.at[rows])
        part._spare = self._spare
        return part

    def rejoin(self, rows: Vector, part: PageWalk) -> None:
        """Continue where a walk over a part of the rows has arrived."""
        self.at[rows] = part.at
        self._spare = min(self._spare, part._spare)
        self.fits[rows] &= part.fits


Finish = Callable[[Mask | None], Array]
"""Makes the Arrow array of a field from the rows that fit to their end (None: all rows)."""


def chosen(values: Vector, good: Mask | None) -> Vector:
    """Return the values of the rows that fit (None: all rows)."""
    return values if good is None else values[good]
