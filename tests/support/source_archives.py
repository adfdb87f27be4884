"""Source archives of packages, of the versions that are locked: their tests are not in their wheels."""

import subprocess
import tarfile
import venv
from importlib.metadata import version
from pathlib import Path


def unpacked(package: str, folder: Path) -> Path:
    """Fetch the source archive of an installed package, and return the folder that it was unpacked to.

    Only this package comes as source: what pip builds its metadata with comes as wheels, or takes minutes.
    """
    venv.create(folder / "pip", with_pip=True)
    pip = [str(folder / "pip" / "bin" / "python"), "-m", "pip", "download", "--no-deps", "--no-binary", package]
    subprocess.run([*pip, "--dest", str(folder), f"{package}=={version(package)}"], check=True, capture_output=True)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    return next(path for path in folder.iterdir() if path.is_dir() and path.name != "pip")
