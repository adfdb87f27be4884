"""Read the fields of a request in the order in which its frames have them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from phalanx.maps.own_maps import check_not_ours
from phalanx.maps.requests import check_map_name
from phalanx_protocols.hazelcast.data import HASH_BYTES, MIN_DATA_BYTES
from phalanx_protocols.hazelcast.frames import BEGIN, END, MESSAGE_HEAD_BYTES, NULL, BadFrame, FrameMark, Message

T = TypeVar("T")


@lru_cache(maxsize=1024)
def _map_name(name: bytes) -> str:
    try:
        return check_not_ours(check_map_name(name.decode()))
    except UnicodeDecodeError as error:
        raise BadFrame(f"the name of a map is not UTF-8: {error.reason}") from None


class Fields:
    """The frames of one request behind its first one, read one by one. Every method raises `BadFrame`."""

    __slots__ = ("_at", "_frames")

    def __init__(self, frames: Message) -> None:
        self._frames = frames
        self._at = 1

    def fixed(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Return the fields of fixed size. A newer client can have sent more of them."""
        try:
            return layout.unpack_from(self._frames[0], MESSAGE_HEAD_BYTES)
        except struct.error:
            raise BadFrame(
                f"the first frame has {len(self._frames[0])} bytes, and needs {MESSAGE_HEAD_BYTES + layout.size}"
            ) from None

    def _next(self) -> bytes:
        try:
            frame = self._frames[self._at]
        except IndexError:
            raise BadFrame("the request ends before its last field") from None
        self._at += 1
        return frame

    def payload(self) -> bytes:
        """Return the payload of the next frame."""
        frame = self._next()
        if type(frame) is FrameMark:
            raise BadFrame(f"a frame that is {frame.decode()} stands where a field must be")
        return frame

    def text(self) -> str:
        """Return the next text."""
        try:
            return self.payload().decode()
        except UnicodeDecodeError as error:
            raise BadFrame(f"a text is not UTF-8: {error.reason}") from None

    def map(self) -> str:
        """Return the name of a map. Raises `UsageError` if none can have it, and for Phalanx's own maps."""
        return _map_name(self.payload())

    def data(self) -> bytes:
        """Return the next key or value, as the grid stores it."""
        frame = self.payload()
        if len(frame) < MIN_DATA_BYTES:
            raise BadFrame(f"a key or value of {len(frame)} bytes: the least is {MIN_DATA_BYTES}")
        return frame[HASH_BYTES:]

    def map_key_value(self) -> tuple[str, bytes, bytes]:
        """Return the name of a map, a key and a value: as `map`, `data` and `data`, faster."""
        frames, at = self._frames, self._at
        if len(frames) >= at + 3 and FrameMark not in map(type, frames[at : at + 3]):
            key, value = frames[at + 1], frames[at + 2]
            if len(key) >= MIN_DATA_BYTES and len(value) >= MIN_DATA_BYTES:
                self._at = at + 3
                return _map_name(frames[at]), key[HASH_BYTES:], value[HASH_BYTES:]
        return self.map(), self.data(), self.data()

    def nullable(self, read: Callable[[], T]) -> T | None:
        """Return the next field, or None for a null."""
        if self._at < len(self._frames) and self._frames[self._at] is NULL:
            self._at += 1
            return None
        return read()

    def many(self, read: Callable[[], T]) -> list[T]:
        """Return the next list."""
        if self._next() is not BEGIN:
            raise BadFrame("a list does not begin where it must")
        found = []
        while not self.is_at_end():
            found.append(read())
        self._at += 1
        return found

    def datas(self) -> list[bytes]:
        """Return the next list of keys or values: as `many(data)`, faster."""
        frames, begins = self._frames, self._at
        try:
            ends = frames.index(END, begins)  # a payload that equals the mark is too short for data
        except ValueError:
            raise BadFrame("the request ends within a list") from None
        found = frames[begins + 1 : ends]
        if begins == ends or frames[begins] is not BEGIN or FrameMark in map(type, found):
            raise BadFrame("a list does not begin or end where it must")
        if found and min(map(len, found)) < MIN_DATA_BYTES:
            raise BadFrame(f"a key or value of {min(map(len, found))} bytes: the least is {MIN_DATA_BYTES}")
        self._at = ends + 1
        return [frame[HASH_BYTES:] for frame in found]

    def entries(self) -> tuple[list[bytes], list[bytes]]:
        """Return the keys and the values of the next list of entries."""
        both = self.datas()
        if len(both) % 2:
            raise BadFrame("a list of entries ends with a key")
        return both[::2], both[1::2]

    def begin(self) -> None:
        """Step into a structure."""
        if self._next() is not BEGIN:
            raise BadFrame("a structure does not begin where it must")

    def end(self) -> None:
        """Step out of a structure, over fields that only newer clients send."""
        depth = 1
        while depth:
            frame = self._next()
            depth += (frame is BEGIN) - (frame is END)

    def is_at_end(self) -> bool:
        """Return whether the list or structure ends here. Raises `BadFrame` if the request does."""
        if self._at >= len(self._frames):
            raise BadFrame("the request ends within a list")
        return self._frames[self._at] is END
