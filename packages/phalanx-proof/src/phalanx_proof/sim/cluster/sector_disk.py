"""A model of a disk with segment files: what was synced stays, and of what was not each sector can be there or not, in each of its states."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random

SECTOR = 512
Image = dict[int, bytes]
"""The bytes of each segment file by number."""
Places = dict[tuple[int, int], int]
"""By file and sector how many of its states a sync covers."""


class SectorDisk:
    """Files of which each sector has the state that was synced last, and those that were written since."""

    def __init__(self, image: Image | None = None) -> None:
        self._synced = {number: bytearray(data) for number, data in (image or {}).items()}
        self._written: dict[tuple[int, int], list[bytes]] = {}
        """By file and sector: its states since it was synced, the oldest first."""
        self._removed: dict[int, bytearray] = {}
        """Files that were removed since the folder was synced: after a power cut they can be there again."""

    @property
    def numbers(self) -> list[int]:
        return sorted(self._synced)

    def create(self, number: int, head: bytes, size: int) -> None:
        """Make a file of zeros with a head, which is synced, with its folder, before it is used."""
        self._synced[number] = bytearray(head + bytes(size - len(head)))
        self._removed.clear()

    def remove(self, number: int) -> None:
        """Remove a file."""
        self._removed[number] = self._synced.pop(number)
        for place in [place for place in self._written if place[0] == number]:
            del self._written[place]

    def write(self, number: int, offset: int, data: bytes | bytearray) -> None:
        """Write bytes that are not synced."""
        file, end = self._synced[number], offset + len(data)
        if len(file) < -(-end // SECTOR) * SECTOR:
            file.extend(bytes(-(-end // SECTOR) * SECTOR - len(file)))  # its room is reserved, and zero
        for sector in range(offset // SECTOR, -(-end // SECTOR)):
            states = self._written.setdefault((number, sector), [])
            base = sector * SECTOR
            state = bytearray(states[-1] if states else file[base : base + SECTOR])
            start, stop = max(offset, base), min(end, base + SECTOR)
            state[start - base : stop - base] = data[start - offset : stop - offset]
            states.append(bytes(state))

    def begin_sync(self) -> Places:
        """Return what is synced once a sync is over that begins now."""
        return {place: len(states) for place, states in self._written.items()}

    def end_sync(self, begun: Places) -> None:
        """End a sync."""
        for (number, sector), count in begun.items():
            if states := self._written.get((number, sector)):
                self._synced[number][sector * SECTOR : (sector + 1) * SECTOR] = states[count - 1]
                del states[:count]
                if not states:
                    del self._written[number, sector]

    def cut_power(self, rng: Random) -> None:
        """Lose what was not synced, but for what the disk happens to have: of each sector any state, or one that is torn inside."""
        keeps = rng.choice((0.0, 0.0, 0.5, 0.5, 0.9, 1.0))
        for (number, sector), states in sorted(self._written.items()):
            if rng.random() >= keeps:
                continue
            base = sector * SECTOR
            before, after = bytes(self._synced[number][base : base + SECTOR]), rng.choice(states)
            torn_at = rng.randrange(SECTOR) if rng.random() < 0.1 else SECTOR
            self._synced[number][base : base + SECTOR] = after[:torn_at] + before[torn_at:]
        self._written.clear()
        for number, data in sorted(self._removed.items()):
            if rng.random() < 0.5:
                self._synced[number] = data
        self._removed.clear()

    def damage(self, rng: Random, *, is_sector: bool) -> int:
        """Change a bit somewhere in what was synced, or turn a sector of it into zeros. Return the number of the file."""
        number = rng.choice(self.numbers)
        file = self._synced[number]
        at = rng.randrange(max(1, len(bytes(file).rstrip(b"\0"))))
        if is_sector:
            at -= at % SECTOR
            file[at : at + SECTOR] = bytes(len(file[at : at + SECTOR]))
        else:
            file[at] ^= 1 << rng.randrange(8)
        return number

    def images(self, most: int, chance: Random) -> Iterator[Image]:
        """Yield what a crash can leave: everything if these are not more than `most`, else so many of them, with all and nothing among them."""
        places = sorted(self._written)
        choices = [range(len(self._written[place]) + 1) for place in places]
        count = 1
        for choice in choices:
            count *= len(choice)
        if count <= most:
            chosen = list(itertools.product(*choices))
        else:
            chosen = [tuple(chance.choice(choice) for choice in choices) for _ in range(most - 2)]
            chosen += [tuple(0 for _ in choices), tuple(len(choice) - 1 for choice in choices)]
        for states in chosen:
            files = {number: bytearray(data) for number, data in self._synced.items()}
            for (number, sector), state in zip(places, states, strict=True):
                if state:
                    content = self._written[number, sector][state - 1]
                    files[number][sector * SECTOR : (sector + 1) * SECTOR] = content
            yield {number: bytes(data) for number, data in files.items()}

    def synced(self) -> Image:
        """Return what is on the disk if nothing of what was not synced is."""
        return {number: bytes(data) for number, data in self._synced.items()}

    def latest(self) -> Image:
        """Return everything that was written, as the system shows it."""
        files = {number: bytearray(data) for number, data in self._synced.items()}
        for (number, sector), states in self._written.items():
            files[number][sector * SECTOR : (sector + 1) * SECTOR] = states[-1]
        return {number: bytes(data) for number, data in files.items()}
