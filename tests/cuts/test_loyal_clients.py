"""A client that reaches both sides of a cut stays with the members that serve it, for as long as they answer."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuts.machines import LocalClient, Machines
from cuts.network import NetworkWithClient, why_there_is_none
from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_key_data
from support.processes import wait_for

pytestmark = [pytest.mark.cuts, pytest.mark.timeout(300)]

TOGETHER = 50
"""Increments of each counter while both sides are parted."""
NEWS_S = 12.0
"""A client asks for the table every five seconds; two such times."""


class Counter(threading.Thread):
    """Increments one key, and notes what it is told."""

    def __init__(self, machines: Machines, host: str, key: str) -> None:
        super().__init__(daemon=True)
        self._machines, self._host, self._key = machines, host, key
        self.told: list[int] = []
        self.failure: Exception | None = None
        self.is_over = False
        self.start()

    def run(self) -> None:
        client = LocalClient(self._machines, self._host, {"call_timeout_s": 30.0})
        try:
            while not self.is_over:
                self.told.append(client.call("open", "increment", self._key))
                time.sleep(0.02)
        except Exception as error:
            self.failure = error
        finally:
            client.close()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    if why := why_there_is_none():
        pytest.skip(f"no real cuts: {why}")
    with NetworkWithClient(4) as network, Machines(network, tmp_path) as made:
        made.start()
        with made.client("N1") as grid:
            grid.call("open", "put", "any", 1)
        made.wait_whole(made.everybody)
        yield made
        print(made.logs())


def key_of(machines: Machines, name: str) -> str:
    """A key that this member owns."""
    owners = [row.split()[0] for row in machines.rows_of(name)]
    count = len(owners)
    return next(
        key for key in map("key {}".format, range(10_000)) if owners[partition_of(to_key_data(key), count)] == name
    )


def test_who_counts_at_one_side_of_a_cut_goes_on_counting_there(machines: Machines) -> None:
    network = machines.network
    assert isinstance(network, NetworkWithClient)
    counters = [Counter(machines, network.of_clients, key_of(machines, name)) for name in ("N1", "N3")]
    try:
        wait_for(lambda: all(len(each.told) > TOGETHER for each in counters), "both count")
        machines.cut("N1 N2", "N3")
        machines.wait_lists({"N1 N2": "N1 N2", "N3": "N3"})
        until = time.monotonic() + NEWS_S
        wait_for(lambda: time.monotonic() > until or any(each.failure for each in counters), "the news goes round", 60)
        before = [len(each.told) for each in counters]
        wait_for(
            lambda: all(len(each.told) > many + TOGETHER for each, many in zip(counters, before, strict=True)),
            "both count on",
        )
    finally:
        for each in counters:
            each.is_over = True
        for each in counters:
            each.join(60)
    for each in counters:
        assert each.failure is None
        assert each.told == list(range(1, len(each.told) + 1)), "another side has counted less"
