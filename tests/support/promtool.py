"""Prometheus and its checker: from the PATH, or unpacked from Debian's package, which is not installed: it would begin to run."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

PACKAGE = "prometheus"
CACHE = Path(tempfile.gettempdir()) / "phalanx-promtool"


def promtool() -> str:
    """The path of the checker."""
    return program("promtool")


def program(name: str) -> str:
    """The path of a program of the package; skips the test where there is none, and none can be fetched."""
    kept = CACHE / "usr" / "bin" / name
    found = shutil.which(name) or (str(kept) if kept.is_file() else None)
    if found is None and shutil.which("apt-get") is not None and shutil.which("dpkg-deb") is not None:
        _fetch()
        found = str(kept) if kept.is_file() else None
    if found is None:
        pytest.skip(f"{name} is not here, and there is no apt-get to fetch it with: install Prometheus")
    return found


def _fetch() -> None:
    """Unpack the package beside its place first: tests that run at once must not see half of it."""
    with tempfile.TemporaryDirectory(prefix="promtool-", dir=CACHE.parent) as folder:
        for command in (["apt-get", "download", "-qq", PACKAGE], ["apt-get", "update", "-qq"]):
            subprocess.run(command, cwd=folder, check=False, capture_output=True)
            if packages := list(Path(folder).glob("*.deb")):
                break
        else:
            subprocess.run(["apt-get", "download", "-qq", PACKAGE], cwd=folder, check=False, capture_output=True)
            packages = list(Path(folder).glob("*.deb"))
        if not packages:
            return
        subprocess.run(["dpkg-deb", "-x", str(packages[0]), f"{folder}/unpacked"], check=True, capture_output=True)
        if not CACHE.exists():
            Path(folder, "unpacked").rename(CACHE)


def check(command: str, text: bytes | Path) -> str:
    """What `promtool check ...` says of a text on stdin, or of a file; empty: nothing is wrong."""
    given = text if isinstance(text, bytes) else None
    files = [str(text)] if isinstance(text, Path) else []
    done = subprocess.run([promtool(), *command.split(), *files], input=given, capture_output=True, check=False)
    said = (done.stdout + done.stderr).decode()
    return said if done.returncode or given is not None else ""
