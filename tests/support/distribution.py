"""How `./run test` distributes tests over its processes: which of them stay together, and which begin first.

xdist gives each free process the next group (`--dist loadgroup`). Groups of tests with real processes come first: they
take up to minutes, and mostly wait. Simulated histories, which never do, are dealt between them, so that no core has
nothing to do. Tests of pure code are groups of one, and the short ones come last, so that all processes end together.
"""

from collections.abc import Sequence
from pathlib import PurePath

PURE = ("common", "wire", "membership", "partition", "grid", "node", "disk", "maps", "sim")
"""Folders whose tests start no process, open no socket and wait for nothing. `run` names the same."""
SIMULATIONS = "sim"
SHARE_SPARK = ("archive", "audit", "spark")
"""Folders whose tests share one Java process, and those of a folder its session (`sparks`)."""


def find_group(test: str) -> str | None:
    """The group of the test with this id below the root, "tests/…"; None for one that may run anywhere."""
    file = test.partition("::")[0]
    folder = PurePath(file).parent.name
    if folder in PURE:
        return None
    # The tests of a file share a cluster. One Java process for all of Spark: each compiles what it runs for itself.
    return "spark" if folder in SHARE_SPARK else file


def arrange(tests: Sequence[str]) -> list[int]:
    """The order in which tests begin, as their places among these."""
    folders = [PurePath(test.partition("::")[0]).parent.name for test in tests]
    with_processes = [place for place, folder in enumerate(folders) if folder not in PURE]
    histories = [place for place, folder in enumerate(folders) if folder == SIMULATIONS]
    dealt = [(index / len(kind), place) for kind in (with_processes, histories) for index, place in enumerate(kind)]
    short = [place for place, folder in enumerate(folders) if folder in PURE and folder != SIMULATIONS]
    return [place for _, place in sorted(dealt)] + short
