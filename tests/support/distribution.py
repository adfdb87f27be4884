"""How `./run test` distributes tests over its processes: which of them stay together, and which begin first.

xdist gives each free process the next group (`--dist loadgroup`). Groups of tests with real processes come first: they
take up to minutes. Tests of pure code are groups of one, shortest folders last, so that all processes end together.
"""

from pathlib import PurePath

PURE = ("common", "wire", "membership", "partition", "grid", "node", "disk", "maps", "sim")
"""Folders whose tests start no process, open no socket and wait for nothing. `run` names the same."""
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


def rank(test: str) -> int:
    """When the test begins: lower ranks first."""
    folder = PurePath(test.partition("::")[0]).parent.name
    if folder not in PURE:
        return 0
    return 1 if folder == "sim" else 2
