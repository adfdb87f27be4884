"""Where the folders of this repository are: a folder that moves is changed in this file, and in no test.

What lies beside a test (its logs, its corpus, a program that it starts) is found from the file of the test.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "packages"
SOURCES = tuple(sorted(PACKAGES.glob("*/src")))
"""Folders from which packages are imported."""
NATIVE = PACKAGES / "phalanx-native"
TESTS = ROOT / "tests"
DOCS = ROOT / "docs"
BENCHMARKS = ROOT / "benchmarks"
SCRIPTS = ROOT / "scripts"
EXAMPLES = ROOT / "examples"
DEPLOY = ROOT / "deploy"
BUILD = ROOT / "build"
"""What is built or fetched once, and kept: no part of the repository."""


def find_packages() -> list[Path]:
    """Return the folder of each package of the sources."""
    return [file.parent for source in SOURCES for file in sorted(source.glob("*/__init__.py"))]


def find_package(name: str) -> Path:
    """Return the folder of the package with this name; raises LookupError if there is none."""
    for package in find_packages():
        if package.name == name:
            return package
    raise LookupError(f"there is no package {name} in {', '.join(map(str, SOURCES))}")


def find_modules() -> dict[str, Path]:
    """Return the file of each module of the sources, by the name that imports it."""
    return {
        ".".join(file.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__"): file
        for package in find_packages()
        for file in sorted(package.rglob("*.py"))
    }


def find_module(path: str, packages: list[Path] | None = None) -> Path | None:
    """Return the file that pages and mutants name by its path below its package, as in `membership/role.py`.

    `packages`: the folders in which it is looked for, instead of those of the sources. Raises LookupError if two have one.
    """
    found = [package / path for package in packages or find_packages() if (package / path).is_file()]
    if len(found) > 1:
        raise LookupError(f"{path} stands in {' and in '.join(map(str, found))}: a path has one place")
    return found[0] if found else None
