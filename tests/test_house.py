"""Rules of the house that a tool can hold: pure core, imports that point down, a lock that fits, no leftovers."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # it has no types
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from phalanx_proof.sim.code_digest import MACHINES
from support.roots import BENCHMARKS, PACKAGES, ROOT, SCRIPTS, SOURCES, TESTS, find_modules, find_package

GRID = find_package("phalanx")
CORE = ("common", "wire", "codec", "machine", "membership", "partition", "grid", "calls", "node", "disk", "endpoints")
PURE = {
    **{f"phalanx.{folder}": GRID / folder for folder in CORE},
    "phalanx_protocols": find_package("phalanx_protocols"),
}
"""What does no I/O and reads no clock: its name, and its folder."""
TOOLS = Path(sys.executable).parent  # the tools of the environment that runs the tests, whatever the PATH says
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def source_modules() -> list[Path]:
    return sorted(path for folder in (*SOURCES, BENCHMARKS) for path in folder.rglob("*.py"))


def repository_files() -> list[Path]:
    """What is, or would be, committed; in an unpacked archive, everything but environments and caches."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        names = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        names = [path for path in ROOT.rglob("*") if not any(part.startswith(".") for part in path.parts)]
    return [path for path in names if path.is_file()]


def places(pattern: str, files: list[Path]) -> list[str]:
    found = []
    for path in files:
        text = path.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            if re.search(pattern, line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    return found


def test_source_has_no_leftovers() -> None:
    assert places(r"\b(TODO|FIXME|XXX|HACK)\b|\bNotImplementedError\b", source_modules()) == []


def test_source_has_no_bare_assert() -> None:
    """`python -O` drops them; phalanx.common.invariant stays on."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in source_modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assert)
    ]
    assert found == []


def test_every_module_says_what_it_is() -> None:
    silent = [path for path in source_modules() if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    assert [str(path.relative_to(ROOT)) for path in silent] == []


def imports_of(path: Path, modules: dict[str, Path]) -> set[str]:
    """The modules that one imports, also for its types alone."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {name if (name := f"{node.module}.{each.name}") in modules else node.module for each in node.names}
    return found & modules.keys()


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Who changes one of them would have to know them all."""
    modules = {name: path for name, path in find_modules().items() if path.name != "__init__.py"}
    assert len(modules) > 350
    graph = {name: imports_of(path, modules) for name, path in modules.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError, with the circle


def test_the_digest_of_the_code_has_all_folders_of_the_core() -> None:
    """A search plays nothing again that was played with the same code: what decides a history must be in it."""
    assert set(MACHINES) == set(CORE)


def test_no_two_public_classes_have_one_name() -> None:
    """A reader who meets a name elsewhere must not have to ask which one it is."""
    places_of: dict[str, list[str]] = {}
    for module, path in find_modules().items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places_of.setdefault(node.name, []).append(module)
    assert len(places_of) > 500
    assert {name: found for name, found in places_of.items() if len(found) > 1} == {}


def test_every_folder_of_modules_is_a_package() -> None:
    """The import contracts and the wheel pass silently over a folder without __init__.py."""
    folders = {path.parent for path in source_modules()}
    assert [str(folder.relative_to(ROOT)) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_no_file_names_a_registry_or_a_place_of_one_machine() -> None:
    """The user's own settings say where packages come from; a path of one machine is wrong on every other."""
    hosts = (
        "pypi" + r"\.org",
        "python" + "hosted",
        "anaconda" + r"\.org",
        "repo1" + r"\.maven",
        "registry" + r"\.npmjs",
    )
    paths = ("/work" + r"/(main|shared)\b", "/ro" + "ot/", r"\.\./" + r"shared\b")
    assert places("|".join(hosts + paths), repository_files()) == []


def test_tests_read_in_one_module_where_folders_are() -> None:
    """A folder that moves would have to be found in each of them."""
    files = [path for path in TESTS.rglob("*.py") if path != TESTS / "support" / "roots.py"]
    assert places(r"__file__\)(\.resolve\(\))?\.(parents\[|parent\.parent)", files) == []


def test_no_folder_gets_more_of_what_there_is_to_be_less_of() -> None:
    """Fewer are recorded by `--record`. What moves to another folder takes its number along, by hand, in tests/counts.json."""
    script = str(SCRIPTS / "house_counts.py")
    counted = json.loads(subprocess.run([sys.executable, script, "--json"], stdout=subprocess.PIPE, check=True).stdout)
    recorded = json.loads((TESTS / "counts.json").read_text(encoding="utf-8"))
    risen = [
        f"{name} of {folder}: {number}, and not {most}; ./run python scripts/house_counts.py --list {name} {folder}"
        for folder, counts in counted.items()
        for name, number in counts.items()
        if number > (most := recorded.get(folder, {}).get(name, 0))
    ]
    assert not risen, "\n".join(risen)


def declared_requirements() -> list[Requirement]:
    groups, ours = list(PROJECT["dependency-groups"].values()), set()
    for path in sorted(PACKAGES.glob("*/pyproject.toml")):
        described = tomllib.loads(path.read_text(encoding="utf-8"))
        project = described["project"]
        ours.add(project["name"])
        groups += [project.get("dependencies", []), described["build-system"]["requires"]]
        groups += project.get("optional-dependencies", {}).values()
    requirements = [Requirement(text) for group in groups for text in group]
    return [requirement for requirement in requirements if requirement.name not in ours]


def test_the_forge_plays_every_python_that_packages_name() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["test"]
    assert [step["run"] for step in job["steps"] if "run" in step] == ["./run test"], (
        "the command of the README, and nothing else"
    )
    for path in sorted(PACKAGES.glob("*/pyproject.toml")):
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        named = re.findall(r"Python :: (3\.\d+)", " ".join(project.get("classifiers", [])))
        assert set(named) <= set(job["strategy"]["matrix"]["python"]), path


def locked_versions() -> dict[str, list[str]]:
    """Package name to its locked versions (one per marker)."""
    locked: dict[str, list[str]] = {}
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE):
        locked.setdefault(canonicalize_name(name), []).append(version)
    return locked


@pytest.mark.parametrize("requirement", declared_requirements(), ids=str)
def test_the_lock_fits_what_is_declared(requirement: Requirement) -> None:
    versions = locked_versions().get(canonicalize_name(requirement.name), [])
    assert versions, f"{requirement.name} is not locked: ./run lock"
    for version in versions:
        assert requirement.specifier.contains(version, prereleases=True), (
            f"{requirement} but locked {version}: ./run lock"
        )


def test_every_locked_package_is_pinned_by_hash() -> None:
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pins = re.findall(r"^[\w.-]+==.*\n(?:[ \t]+(--hash=sha256:))?", text, re.MULTILINE)
    assert pins
    assert all(pins)


def in_copy(path: Path, root: Path) -> Path:
    """Return where a path of this repository is in a copy of it."""
    return root / path.relative_to(ROOT)


def run_tool(name: str, *arguments: str, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    sources = os.pathsep.join(str(in_copy(source, root)) for source in SOURCES)
    environment = {**os.environ, "PYTHONPATH": sources, "NO_COLOR": "1", "COLUMNS": "200"}
    command = [str(TOOLS / name), *arguments]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=100)


PLANTED = {
    **{f"{name}.planted": "import time\n\nUSED = time.time\n" for name in PURE},
    "phalanx.wire.planted_upwards": "import phalanx.runtime\n\nUSED = phalanx.runtime\n",
    "phalanx.cli.planted": "import benchmarks.plan\n\nUSED = benchmarks.plan\n",
}
"""Modules that break a contract each, in their third line."""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with what is planted."""
    root = tmp_path_factory.mktemp("planted")
    for folder in (*SOURCES, BENCHMARKS):
        shutil.copytree(folder, in_copy(folder, root), ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    for name, text in PLANTED.items():
        package, _, rest = name.partition(".")
        (in_copy(find_package(package), root) / f"{rest.replace('.', '/')}.py").write_text(
            f'"""Planted."""\n\n{text}', encoding="utf-8"
        )
    return root


@pytest.fixture(scope="module")
def refused(planted: Path) -> subprocess.CompletedProcess[str]:
    """What the import contracts say of all that is planted."""
    return run_tool(
        "lint-imports", "--no-logo", "--no-cache", "--config", str(planted / "pyproject.toml"), root=planted
    )


def test_import_contracts_hold_but_for_what_is_planted(refused: subprocess.CompletedProcess[str]) -> None:
    """`./run check` plays them without."""
    importers = set(re.findall(r"^- +(\S+) -> ", refused.stdout, re.MULTILINE))
    assert importers == set(PLANTED)
    assert refused.returncode == 1


def test_an_import_of_the_clock_in_the_core_is_refused_by_both_tools(
    planted: Path, refused: subprocess.CompletedProcess[str]
) -> None:
    sources = [str(source.relative_to(ROOT)) for source in SOURCES]
    ruff = run_tool("ruff", "check", "--no-cache", "--output-format=concise", *sources, root=planted)
    assert ruff.returncode == 1
    for name, folder in PURE.items():
        assert f"{folder.relative_to(ROOT)}/planted.py:3:8: TID251 `time` is banned" in ruff.stdout
        assert f"{name}.planted -> time (l.3)" in refused.stdout


def test_an_import_that_points_up_is_refused(refused: subprocess.CompletedProcess[str]) -> None:
    assert "phalanx.wire.planted_upwards -> phalanx.runtime (l.3)" in refused.stdout


def test_the_wheel_does_not_import_the_measurements(refused: subprocess.CompletedProcess[str]) -> None:
    assert "phalanx.cli.planted -> benchmarks.plan (l.3)" in refused.stdout


def test_both_tools_ban_the_same_modules_in_every_core_folder() -> None:
    banned = tomllib.loads((GRID / "core.ruff.toml").read_text(encoding="utf-8"))
    by_ruff = {name for name in banned["lint"]["flake8-tidy-imports"]["banned-api"] if "." not in name}
    contract = next(each for each in PROJECT["tool"]["importlinter"]["contracts"] if each["id"] == "pure-core")
    assert by_ruff == set(contract["forbidden_modules"])
    assert set(PURE) == set(contract["source_modules"])
    for folder in PURE.values():
        own = tomllib.loads((folder / "ruff.toml").read_text(encoding="utf-8"))
        assert (folder / own.pop("extend")).resolve() == GRID / "core.ruff.toml"
        assert own in ({}, {"lint": {"extend-select": ["D401"]}}), f"{folder} bans what the core bans, and no less"
