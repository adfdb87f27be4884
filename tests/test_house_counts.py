"""What is counted in the source, on planted modules: each folder has what counts, and beside it what looks like it and does not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.roots import SCRIPTS

HOMES = """
class Suspicions:
    def __init__(self) -> None:
        self.open: set[str] = set()


class MembershipState:
    view: int

    def __init__(self) -> None:
        self.suspicions = Suspicions()
        self.view = 0


class GridService:
    def __init__(self, state: MembershipState) -> None:
        self.state = state
        state.view = 1
"""
"""The module of a class reaches what it likes."""

PLANTED = {
    "verbless": '''
class Store:
    """Entries of a map."""

    def __init__(self) -> None:
        """No verb, but a constructor."""

    @property
    def size(self) -> int:
        """No verb, but a property."""

    @functools.cached_property
    def hash(self) -> int:
        """No verb, but kept."""

    def without_docstring(self) -> None: ...

    def get(self) -> int:
        """Return a value."""

    def move(self) -> None:
        """`move A B`: a command, and how it is written."""

    async def put(self) -> None:
        """Writes a value."""

    def has(self) -> bool:
        """Whether there is one."""

        def inner() -> None:
            """`None`."""
''',
    "told": """
told_at = 0


class EventLogTold:
    told_at: int

    def tell(self, told_by: str, untold: str = "", foretold_at: int = 0) -> None:
        told_at = told_by
        self._told = told_at
        _ = [told for told in told_by]
        _ = lambda is_told: is_told
""",
    "acting": """
class Guard:
    def is_refused(self, caller) -> bool:
        self.out.send(caller)

    def _has_room(self) -> bool:
        self.rooms[1].count -= 1

    def fits_all(self) -> bool:
        self.seen.add(1)

    def owns_it(self, name) -> bool:
        del self.owned[name]

    def holds_view(self, views) -> bool:
        views.pop()

    def is_pure(self, names) -> bool:
        found = set()
        found.add(names.get(self))
        found.size = self.size
        return found

    def has_inner(self) -> bool:
        def later() -> None:
            self.sent = True

        return bool(later)

    def asks_and_acts(self) -> None:
        self.asked = True
""",
    "state": """
from planted.homes import GridService, MembershipState


class Machine:
    def __init__(self, state: MembershipState, other: "MembershipState | None", grid: GridService) -> None:
        self._state, self._other = state, other
        self.grid = grid
        self.view = grid.view

    def read(self) -> None:
        yield self._state.view
        yield self.grid.state.view
        yield self.view
        yield self._state.suspicions.open

    def write(self, machine: "Machine") -> None:
        machine._state.view = 1
        self._other.view += 1
        del self.grid.state

    def inner(self) -> None:
        state = MembershipState()

        def later() -> None:
            yield state.view

        yield unknown.view
""",
    "grid": """
class Crowded:
    def __init__(self, one, two, three, *, four, five) -> None: ...

    def on_view(self, view) -> None: ...


class Narrow:
    def __init__(self, one, two, three, four) -> None: ...

    def routes(self) -> dict: ...


class Record:
    def __init__(self, one, two, three, four, five) -> None: ...
""",
    "parameters": """
Zone = Annotated[str, typer.Option()]


class Machine:
    def six(self, a, b, c, d, e, f, *rest, **more) -> None: ...

    def seven(self, a, /, b, c, d, *, e, f, g) -> None: ...


def command(a: str, b: str, c: str, d: str, e: str, f: str, zone: o.Zone) -> None: ...


def other_command(a: str, b: str, c: str, d: str, e: str, f: str, g: Annotated[str, typer.Option()]) -> None: ...
""",
    "numbering": """
class Replica:
    def __init__(self) -> None:
        self.seq = 0

    def apply(self, mutation) -> None:
        self.seq = mutation.seq
        seq = self.seq


def skip(owned) -> None:
    owned.replica.seq += 1
""",
    "side-doors": """
def put(owned, leader, key) -> None:
    owned.commit_plain(key)
    leader.commit_plain(key)
    NATIVE.put_values(key)
    leader.commit(key)
    commands.carry_out(key)
""",
}

COUNTED = {
    "verbless": {"verbless": 3},
    "told": {"told": 6},
    "acting": {"acting": 5},
    "state": {"state-read": 4, "state-written": 2, "grid-read": 2, "grid-written": 1},
    "grid": {"crowded": 1},
    "parameters": {"parameters": 1},
    "numbering": {"numbering": 2},
    "side-doors": {"side-doors": 3},
}


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    package = tmp_path / "planted"
    for folder, text in PLANTED.items():
        (package / folder).mkdir(parents=True)
        (package / folder / "module.py").write_text(text, encoding="utf-8")
    (package / "homes.py").write_text(HOMES, encoding="utf-8")
    return package


def run_counter(package: Path, *arguments: str) -> str:
    command = [sys.executable, str(SCRIPTS / "house_counts.py"), "--package", str(package), *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_each_folder_has_what_was_planted_there(planted: Path) -> None:
    counted = json.loads(run_counter(planted, "--json"))
    assert counted == COUNTED


def test_the_places_of_a_count_are_listed(planted: Path) -> None:
    listed = run_counter(planted, "--list", "numbering", "numbering").splitlines()
    assert listed == ["numbering: planted.numbering.module:12:4 skip", "numbering: planted.numbering.module:7:8 apply"]
    assert run_counter(planted, "--list", "numbering", "grid") == ""


def test_recorded_numbers_only_fall(planted: Path, tmp_path: Path) -> None:
    recorded = tmp_path / "counts.json"
    gone = {"left": {"told": 1}, "numbering": {"verbless": 1}}
    recorded.write_text(
        json.dumps({"told": {"told": 7, "acting": 2}, "acting": {"acting": 4}, **gone}), encoding="utf-8"
    )
    run_counter(planted, "--record", "--recorded", str(recorded))
    assert json.loads(recorded.read_text(encoding="utf-8")) == {"told": {"told": 6}, "acting": {"acting": 4}}
