"""How far the log of a member is read back, which takes minutes for gigabytes. One thread notes it, others ask."""

from __future__ import annotations


class ReadingProgress:
    """The progress of one reading."""

    def __init__(self) -> None:
        self._total_bytes = 0
        """How much there is to read; 0: not known yet."""
        self._read_bytes = 0

    def begin(self, total_bytes: int) -> None:
        """Note how much there is to read."""
        self._total_bytes = total_bytes

    def note(self, size: int) -> None:
        """Note that so many bytes more were read."""
        self._read_bytes += size

    def in_words(self) -> str:
        """Say how far it is: the end of a sentence."""
        if not self._total_bytes:
            return "it looks at its folder"
        percent = min(
            99, 100 * self._read_bytes // self._total_bytes
        )  # the end of the reading is not the end of the start
        return f"it reads its log back: {percent} %"
