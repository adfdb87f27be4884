"""Each drawing of the text files of this folder is a test for each side that may look first, and both orders of addresses.

It cites the rules of the line `# rows: …` above it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx_proof.sim.scenario.errors import ScenarioError
from support.drawings import Drawing, Variant, parse_drawings, play_drawing, variants

HERE = Path(__file__).parent


class Otherwise(Exception):
    """It went otherwise than drawn."""


class DrawnFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        for drawing in parse_drawings(self.path.read_text(encoding="utf-8"), self.path.name):
            for variant in variants(drawing):
                name = f"{drawing.number}[{variant}]"
                item = DrawnItem.from_parent(self, name=name, drawing=drawing, variant=variant)
                item.add_marker(pytest.mark.rows(*drawing.rows))
                yield item


class DrawnItem(pytest.Item):
    def __init__(self, *, drawing: Drawing, variant: Variant, **fields: Any) -> None:
        super().__init__(**fields)
        self.drawing, self.variant = drawing, variant

    def runtest(self) -> None:
        if failures := play_drawing(self.drawing, self.variant):
            raise Otherwise("\n".join([self.drawing.title, self.drawing.text, *failures]))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, Otherwise | ScenarioError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.drawing.number - 1, f"{self.drawing.title} ({self.variant})"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix == ".txt" and file_path.parent == HERE:
        return DrawnFile.from_parent(parent, path=file_path)
    return None
