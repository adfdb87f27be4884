"""The plugin for pytest: fixtures with a grid, and with clusters that can be broken. (It imports Phalanx when a test asks for one:
other test runs in the same environment do not pay for it.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from phalanx.testing import LocalCluster, LocalMember


@pytest.fixture
def phalanx_grid() -> Iterator[LocalMember]:
    """Give this test a grid of one member, empty at its beginning, with blocking maps; it listens at `.address`."""
    from phalanx.testing import LocalCluster

    with LocalCluster(1) as cluster:
        yield cluster["A"]


@pytest.fixture
def phalanx_cluster() -> Iterator[Callable[..., LocalCluster]]:
    """`phalanx_cluster(3)` starts a `phalanx.testing.LocalCluster` for this test; the end of the test ends it."""
    from phalanx.testing import LocalCluster

    with ExitStack() as started:

        def start(members: int = 3, **settings: object) -> LocalCluster:
            return started.enter_context(LocalCluster(members, **settings))

        yield start
