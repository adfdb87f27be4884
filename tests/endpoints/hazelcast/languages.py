"""The writers in `clients/`, one in each language, made ready to run: what they need is fetched once, into `build/clients`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.roots import BUILD

HERE = Path(__file__).parent / "clients"
BUILT = BUILD / "clients"
FETCH_TIMEOUT_S = 400
JAR = "com.hazelcast:hazelcast:5.5.0"


def command_of(language: str, program: str = "writer") -> list[str]:
    """Return the command that starts a program of a language, a writer; skips the test where the language, or a registry, is not here."""
    if language == "python":
        return [sys.executable, str(HERE / "writer.py")]
    folder = BUILT / language
    folder.mkdir(parents=True, exist_ok=True)
    for file in (HERE / language).iterdir():
        shutil.copy(file, folder)
    if language == "node":
        _need("node", "npm")
        if not (folder / "node_modules").is_dir():
            _fetch(folder, "npm", "install", "--no-audit", "--no-fund", "--loglevel=error")
        return ["node", str(folder / f"{program}.js")]
    if language == "go":
        _need("go")
        _fetch(folder, "go", "build", "-o", "writer", ".")
        return [str(folder / "writer")]
    _need("java", "javac", "mvn")
    jar = folder / f"hazelcast-{JAR.rpartition(':')[2]}.jar"
    if not jar.is_file():
        _fetch(folder, "mvn", "-q", "-B", "dependency:copy", f"-Dartifact={JAR}", f"-DoutputDirectory={folder}")
    _fetch(folder, "javac", "-cp", str(jar), f"{program.capitalize()}.java")
    return ["java", "-Xmx256m", "-cp", f"{folder}{os.pathsep}{jar}", program.capitalize()]


def _need(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"this takes {' and '.join(programs)}; not here: {', '.join(missing)}")


def _fetch(folder: Path, *command: str) -> None:
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    assert made.returncode == 0, f"{' '.join(command)}: {made.stdout[-2000:]} {made.stderr[-2000:]}"
