"""Hosts whose links can be cut; where they cannot be made, the tests are skipped and the end of the run says why."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cuts.machines import Machines
from cuts.network import Network, why_there_is_none

_SKIPPED = pytest.StashKey[str]()
Start = Callable[..., Machines]


@pytest.fixture
def machines(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Start]:
    """Starts so many members, each on a host of its own, with these settings: `machines(4, backup_count=2)`."""
    why = why_there_is_none()
    if why:
        request.config.stash[_SKIPPED] = why
        pytest.skip(f"no real cuts: {why}")
    with ExitStack() as stack:

        def start(hosts: int, names: str = "", **settings: object) -> Machines:
            made = stack.enter_context(Machines(stack.enter_context(Network(hosts)), tmp_path))
            stack.callback(lambda: print(made.logs()))
            made.start(names, **settings)
            return made

        yield start


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    why = config.stash.get(_SKIPPED, "")
    if why:
        terminalreporter.write_line(f"NOT TESTED: real cuts of the network (tests/cuts): {why}", yellow=True)
