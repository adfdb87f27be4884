"""What writers were told while links were cut, healed and cut again: all of it is there in the end."""

import threading
import time
from collections import Counter
from itertools import count

import pytest

from cuts.conftest import Start
from cuts.machines import SETTLE_S, Machines
from cuts.test_split_brain import MAJORITY, MINORITY, split
from phalanx.common.errors import IndeterminateWrite, UnavailableError
from phalanx.common.map_settings import MapChange, Protection
from support.processes import wait_for

pytestmark = [pytest.mark.long, pytest.mark.cuts, pytest.mark.timeout(400)]

MAPS = ("open", "protected")
KEYS = 25


class Writer(threading.Thread):
    """On one host: writes ever greater numbers to keys of its own, and notes which were acknowledged."""

    def __init__(self, machines: Machines, at: str) -> None:
        super().__init__(daemon=True)
        self.at = at
        self._machines = machines
        self.tried: dict[tuple[str, str], int] = {}
        self.acknowledged: dict[tuple[str, str], int] = {}
        self.count: Counter[str] = Counter()
        """How many were acknowledged in each map."""
        self.failures: Counter[str] = Counter()
        self.is_over = False
        self.start()

    def run(self) -> None:
        with self._machines.client(self.at, call_timeout_s=4.0) as grid:
            for number in count(1):
                for name in MAPS:
                    if self.is_over:
                        return
                    key = f"{self.at} {number % KEYS}"
                    self.tried[name, key] = number
                    try:
                        grid.call(name, "put", key, number)
                    except (UnavailableError, IndeterminateWrite) as error:
                        self.failures[type(error).__name__] += 1
                    else:
                        self.acknowledged[name, key] = number
                        self.count[name] += 1
                time.sleep(0.002)  # five of them share the processors with the members


def goes_on(writers: list[Writer], name: str, at: str) -> None:
    """Until each writer on these hosts has had further writes acknowledged."""
    before = {writer.at: writer.count[name] for writer in writers}
    wait_for(
        lambda: all(writer.count[name] > before[writer.at] + 20 for writer in writers if writer.at in at.split()),
        f"writes to {name} at {at} go on",
        SETTLE_S,
        lambda: str({writer.at: (dict(writer.count), dict(writer.failures)) for writer in writers}),
    )


def test_nothing_that_was_acknowledged_is_lost_by_cuts_that_come_and_go(machines: Start) -> None:
    """Each key has one writer, so that the newest acknowledged number, or a later one, must be there."""
    m = split(machines)
    m.change_map("athens", "protected", MapChange(protection=Protection(majority=True)))
    writers = [Writer(m, name) for name in m.everybody.split()]
    try:
        for name in MAPS:
            goes_on(writers, name, m.everybody)
        # Too short to part them, or just not. A suspicion is over as soon as its suspect is removed, or a claim has ended.
        before = sum(len(m.suspected_by(name)) for name in m.everybody.split())
        m.cut(MAJORITY, MINORITY)
        wait_for(
            lambda: sum(len(m.suspected_by(name)) for name in m.everybody.split()) > before, "a suspicion", SETTLE_S, m.seen
        )  # fmt: skip
        m.heal()
        goes_on(writers, "protected", m.everybody)
        m.wait_lists({m.everybody: f"? {m.everybody}"})
        # Long enough that both sides go on by themselves, other ones than before.
        one, other = "byzantium cyrene delphi", "athens euphesus"
        m.cut(one, other)
        m.wait_lists({one: f"? {one}", other: f"? {other}"})
        goes_on(writers, "open", m.everybody)
        goes_on(writers, "protected", one)
        m.heal()
        m.wait_lists({m.everybody: f"? {m.everybody}"})
        goes_on(writers, "protected", m.everybody)
    finally:
        for writer in writers:
            writer.is_over = True
        for writer in writers:
            writer.join(30)
    m.wait_whole(m.everybody)
    m.wait_merged(other)
    assert all(writer.failures["NotEnoughMembers"] for writer in writers if writer.at in other.split())
    with m.client("athens") as grid:
        found = {name: grid.items(name) for name in MAPS}
    lost = {
        (name, key): (number, found[name].get(key), writer.tried[name, key])
        for writer in writers
        for (name, key), number in writer.acknowledged.items()
        if not number <= found[name].get(key, 0) <= writer.tried[name, key]
    }
    assert not lost, repr(lost)
    m.judge()
