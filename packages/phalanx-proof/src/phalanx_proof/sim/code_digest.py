"""The code as data: a digest of all that decides a history, and the rules that decisions can name."""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import phalanx_protocols
from phalanx import common
from phalanx.common.errors import InvariantViolation
from phalanx_proof import sim
from phalanx_proof.sim.planted_bug import source_files

MACHINES = (
    "common",
    "wire",
    "codec",
    "machine",
    "membership",
    "partition",
    "grid",
    "calls",
    "node",
    "disk",
    "endpoints",
)
"""Folders of the members' code."""
SIMULATOR = "sim"
_GRID, _PROOF, _BESIDE = (Path(package.__path__[0]).parent for package in (common, sim, phalanx_protocols))
RULE = re.compile(r"[A-Z]{1,2}-\d+( |$)")
"""How the name of a rule begins."""


def _modules(root: Path, *folders: str) -> list[tuple[str, Path]]:
    found = {folder: sorted((root / folder).rglob("*.py")) for folder in folders}
    # A digest that leaves out a folder would take two different codes for the same one.
    if missing := [folder for folder, files in found.items() if not files]:
        raise InvariantViolation(f"{root} has no code in {', '.join(missing)}")
    return sorted((str(path.relative_to(root)), path) for files in found.values() for path in files)


def _machines() -> list[tuple[str, Path]]:
    return _modules(_GRID, *MACHINES) + _modules(_BESIDE, phalanx_protocols.__name__)


@functools.cache
def code_digest(canary: str = "") -> str:
    """Return a digest of the members' code, the simulator's and the planted bug's: where it is the same, a seed is the
    same history.
    """
    digest = hashlib.blake2b(digest_size=8)
    planted = [(path.name, path) for path in source_files(canary)]
    for name, path in _machines() + _modules(_PROOF, SIMULATOR) + planted:
        digest.update(f"{name}\n".encode() + path.read_bytes())
    return digest.hexdigest()


@functools.cache
def rules_in_code() -> frozenset[str]:
    """Return every text in the machines that names a rule, as events carry it."""
    return frozenset(
        text
        for _, path in _machines()
        for text in _texts(ast.parse(path.read_text(encoding="utf-8")))
        if RULE.match(text)
    )


def _texts(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module without its docstrings."""
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.value
