"""The native functions of Hazelcast's protocol (`phalanx.codec.native`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from phalanx.codec.native import find_native


class NativeFrames(Protocol):
    """The native functions that read and write frames."""

    def whole_message(
        self, data: bytes, at: int, most: int, max_frames: int, begin: bytes, end: bytes, null: bytes
    ) -> tuple[list[bytes], int] | None:
        """Return the frames of the message of Hazelcast's protocol that begins at `at`, and where it ends.

        None: it has not arrived completely, or it is not a message. `begin`, `end`, `null`: the marks of frames without payload.
        """

    def present_frames(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> bytes:
        """Write the frames of entries that have a value: native version of `hazelcast.data.present_frames`."""


NATIVE: NativeFrames | None = find_native()
