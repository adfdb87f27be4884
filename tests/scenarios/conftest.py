"""Each text file of this folder, and of `data`, is a test: what its commands show is what the file says, and what it expects holds.

    ./run test tests/scenarios --rewrite-scenarios      write what they show now; the diff is to be read

It cites the rules of its line `# rows: …`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx_proof.sim.scenario.errors import ScenarioError
from phalanx_proof.sim.scenario.script import play, rows_of

HERE = Path(__file__).parent


class Broken(Exception):
    """The scenario went otherwise than its file says."""


class ScenarioFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        scenario = Scenario.from_parent(self, name="scenario")
        scenario.add_marker(pytest.mark.rows(*rows_of(self.path.read_text(encoding="utf-8"))))
        yield scenario


class Scenario(pytest.Item):
    def runtest(self) -> None:
        played = play(self.path.read_text(encoding="utf-8"), self.path.name)
        if played.failures:
            # Not even rewritten: what is expected must hold whatever is shown.
            raise Broken("\n".join([*played.failures, played.difference]))
        if self.config.getoption("--rewrite-scenarios"):
            self.path.write_text(played.text, encoding="utf-8")
        elif played.difference:
            raise Broken(f"{played.difference}\nIf that is right: ./run test tests/{HERE.name} --rewrite-scenarios")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, Broken | ScenarioError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.path.stem


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix == ".txt" and file_path.parent in (HERE, HERE / "data"):
        return ScenarioFile.from_parent(parent, path=file_path)
    return None
