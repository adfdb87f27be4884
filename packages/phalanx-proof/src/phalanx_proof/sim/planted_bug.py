"""A bug to plant in a history, named `MODULE:NAME`: with it some seed must end in a violation, or a checker is blind.

The package has none itself. A module that has some names them in a table `CANARIES`, as `tests/planted_bugs` does.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from phalanx.common.errors import UsageError
from phalanx.node.node import Node
from phalanx.reports.module_folder import find_modules_here
from phalanx_proof.sim.cluster.world import World

TABLE = "CANARIES"
EXAMPLE = "tests.planted_bugs:acknowledge-early in a checkout of Phalanx"


class PlantedBug(NamedTuple):
    """What is wrong in every member of a history, or in what drives them."""

    name: str
    """As `load_planted_bug` takes it."""
    plant: Callable[[Node], None] = lambda node: None
    """Changes a new member."""
    world: type[World] = World
    """What carries out the effects of members."""


def load_planted_bug(name: str) -> PlantedBug | None:
    """Import the bug that is called `MODULE:NAME`; None for an empty name.

    Modules are also found in the folder in which the process runs. Raises `UsageError` with what to do.
    """
    if not name:
        return None
    module, _, key = name.partition(":")
    if not key or not all(part.isidentifier() for part in module.split(".")):
        raise UsageError(f"--canary: {name!r} is not a planted bug: expected MODULE:NAME, for example {EXAMPLE}")
    find_modules_here("--canary")
    try:
        table = getattr(importlib.import_module(module), TABLE, {})
    except ImportError as error:
        raise UsageError(
            f"--canary: cannot import {module} ({error}): run this in the folder that has it, or add that to PYTHONPATH"
        ) from error
    bug = table.get(key)
    if not isinstance(bug, PlantedBug):
        raise UsageError(
            f"--canary: there is no planted bug {key!r} in {module}; there are {', '.join(table) or f'none ({TABLE})'}"
        )
    return bug


def source_files(name: str) -> list[Path]:
    """Return the files of the module that has the bug (of a package all its files); empty for an empty name."""
    if load_planted_bug(name) is None:
        return []
    path = Path(sys.modules[name.partition(":")[0]].__file__ or "")
    return sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]
