"""What is published: wheels and source archives that install, outside this checkout and with only what they ask for."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

import phalanx
from support.roots import PACKAGES, ROOT, SCRIPTS, SOURCES, find_package

BIN = Path(sys.executable).parent
PYTHON = tuple(source.parent.name for source in SOURCES)
"""The packages in Python."""
SIMULATE = "import sys; sys.argv[1:] = ['simulate', '--seed', '1']; from phalanx.__main__ import main; main()"
SERVE = "import sys; sys.argv[1:] = ['member', '--serve', 'redis']; from phalanx.__main__ import main; main()"
PING = """
import socket, phalanx
with phalanx.start_member_in_thread(phalanx.Config(serve=('redis',), port=0)) as grid:
    host, _, port = grid.address.rpartition(':')
    with socket.create_connection((host, int(port))) as client:
        client.sendall(b'*1\\r\\n$4\\r\\nPING\\r\\n')
        answer = client.recv(1000)
    assert answer.startswith(b'+PONG'), answer
"""
"""A member, and what it answers to a client of Redis."""
ABSENT = (
    *(("simulate", "proof", "proof"), ("chaos", "proof", "proof"), ("advise", "proof", "proof")),
    *(
        ("export", "spark", "spark"),
        ("restore", "spark", "spark"),
        ("audit", "spark", "audit"),
        ("demo", "spark", "demo"),
    ),
)
"""Commands that `phalanx[cli]` lists and does not bring, with the package that has them and the extra that brings it."""
OF_THE_GRID = {"mmh3", "msgspec", "phalanx", "uvloop"}
"""What `pip install phalanx` brings."""


def load_bootstrap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", SCRIPTS / "bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(
    *command: object, cwd: Path, status: int = 0, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, cwd=cwd, check=False, env=env
    )
    assert done.returncode == status, (command, done.stdout, done.stderr)
    return done


class Place:
    """An environment with a wheel, and no more than the extras bring; other packages of ours are taken from beside it."""

    def __init__(self, folder: Path, wheel: Path, python: str = sys.executable) -> None:
        self.folder, self._wheel = folder, wheel
        folder.mkdir(exist_ok=True)
        bootstrap = load_bootstrap()
        self._env: dict[str, str] = bootstrap.uv_environment(bootstrap.pip_settings()) | {
            "VIRTUAL_ENV": str(folder / "env")
        }
        run(BIN / "uv", "venv", "--python", python, folder / "env", cwd=folder, env=self._env)

    def install(self, extras: str = "") -> set[str]:
        """Install the wheel with extras, as this checkout has them locked. Return the names of all that is installed."""
        locked = run(
            BIN / "uv",
            "pip",
            "freeze",
            "--exclude-editable",
            "--python",
            sys.executable,
            cwd=self.folder,
            env=self._env,
        ).stdout
        constraints = self.folder / "constraints.txt"
        constraints.write_text(
            "".join(f"{line}\n" for line in locked.splitlines() if "phalanx" not in line and "==" in line)
        )
        name = self._wheel.name.partition("-")[0].replace("_", "-")
        wanted = ("--find-links", self._wheel.parent, f"{name}{extras} @ {self._wheel.as_uri()}")
        # A wheel at the same path, of another run, is kept by uv with the packages' names.
        anew = [part for package in PYTHON for part in ("--refresh-package", package)]
        run(BIN / "uv", "pip", "install", *anew, "--constraint", constraints, *wanted, cwd=self.folder, env=self._env)
        listed = run(BIN / "uv", "pip", "freeze", cwd=self.folder, env=self._env).stdout
        return {line.partition("==")[0].partition(" @")[0] for line in listed.splitlines()}

    def python(self, text: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a program there, which does not find this checkout."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PHALANX"))}
        clean |= {"PYSPARK_PYTHON": str(self.folder / "env" / "bin" / "python")}
        return run(self.folder / "env" / "bin" / "python", "-I", "-c", text, cwd=self.folder, status=status, env=clean)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both archives of each package, built from the files that git knows."""
    source = tmp_path_factory.mktemp("source")
    listed = run("git", "ls-files", "-z", cwd=ROOT).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    for package in PYTHON:
        run(sys.executable, "-m", "hatchling", "build", "-d", source / "dist", cwd=source / "packages" / package)
    return source / "dist"


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return next(built.glob("phalanx-*.whl"))


def test_both_are_what_an_index_takes(built: Path, wheel: Path) -> None:
    checked = run(sys.executable, "-m", "twine", "check", "--strict", *built.iterdir(), cwd=built)
    assert checked.stdout.count("PASSED") == 2 * len(PYTHON)
    names = zipfile.ZipFile(wheel).namelist()
    assert "phalanx/py.typed" in names
    grid = find_package("phalanx")
    assets = grid / "http" / "console" / "assets"
    files = {f"phalanx/{path.relative_to(grid)}" for path in assets.rglob("*") if path.is_file()}
    assert len(files) > 15
    assert files <= set(names), "the console is served from the wheel"
    assert not [name for name in names if not name.startswith(("phalanx/", "pytest_phalanx/", "phalanx-"))]
    names = zipfile.ZipFile(next(built.glob("phalanx_spark-*.whl"))).namelist()
    assert {
        "phalanx_spark/log4j2.properties",
        "phalanx_spark/audit/assets/report.html",
        "pyspark_phalanx/__init__.py",
    } <= {*names}
    with tarfile.open(next(built.glob("phalanx-*.tar.gz"))) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "src/phalanx/__init__.py"} <= inside
    assert f"-{phalanx.__version__}-" in wheel.name
    assert f"## {phalanx.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def interpreters() -> list[str]:
    """Those of this machine that the project is for."""
    found = []
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for version in ("3.11", "3.12", "3.13", "3.14"):
        name = f"python{version}"
        places = [shutil.which(name), *sorted(map(str, pyenv.glob(f"{version}.*/bin/{name}")))]
        for place in filter(None, places):
            if subprocess.run([place, "--version"], capture_output=True, check=False).returncode == 0:
                found.append(place)
                break
    return found or [sys.executable]


@pytest.mark.parametrize("python", interpreters())
def test_the_grid_alone_is_small_and_says_what_else_there_is(wheel: Path, tmp_path: Path, python: str) -> None:
    place = Place(tmp_path, wheel, python)
    assert place.install() == OF_THE_GRID
    place.python(
        "import phalanx\n"
        "with phalanx.start_member_in_thread(phalanx.Config(port=0)) as grid, phalanx.Client(grid.address) as client:\n"
        "    client.map('m')['k'] = 1\n"
        "    assert grid.map('m')['k'] == 1\n"
    )
    told = place.python("from phalanx.__main__ import main; main()", status=2)
    assert told.stderr == "phalanx: the command needs typer, which is not installed: pip install 'phalanx[cli]'\n"
    told = place.python("import phalanx.spark", status=1)
    assert "phalanx.spark needs phalanx-spark, which is not installed: pip install 'phalanx[spark]'" in told.stderr


def test_the_command_says_what_brings_the_simulator_and_runs_it_then(built: Path, wheel: Path, tmp_path: Path) -> None:
    place = Place(tmp_path, wheel)
    installed = place.install("[cli]")
    assert "phalanx-protocols" in installed, "--serve redis works"
    assert not {"phalanx-proof", "phalanx-spark"} & installed
    for command, package, extra in ABSENT:
        told = place.python(SIMULATE.replace("simulate", command), status=2)
        assert told.stderr == (
            f"phalanx: {command} needs phalanx-{package}, which is not installed: pip install 'phalanx[{extra}]'\n"
        )
    place = Place(tmp_path / "proof", next(built.glob("phalanx_proof-*.whl")))
    assert {"phalanx", "phalanx-proof"} <= place.install()
    assert json.loads(place.python(SIMULATE).stdout.splitlines()[-1])["violations"] == []


def test_a_member_says_what_brings_the_protocols_and_serves_them_then(built: Path, wheel: Path, tmp_path: Path) -> None:
    place = Place(tmp_path, wheel)
    assert place.install() == OF_THE_GRID
    refused = "serve: redis needs phalanx-protocols: pip install 'phalanx[protocols]'"
    told = place.python(SERVE, status=2)
    assert told.stderr == f"phalanx: {refused}\n"
    told = place.python("import phalanx; phalanx.Config(serve=['redis'])", status=1)
    assert told.stderr.endswith(f"UsageError: {refused}\n")
    place.python(PING.replace("serve=('redis',), ", "").replace("+PONG", "-ERR it speaks the protocol of Redis"))
    place = Place(tmp_path / "protocols", next(built.glob("phalanx_protocols-*.whl")))
    assert place.install() == OF_THE_GRID | {"phalanx-protocols"}
    place.python(PING)


def test_the_package_for_spark_archives_maps_without_pyspark(built: Path, wheel: Path, tmp_path: Path) -> None:
    place = Place(tmp_path, next(built.glob("phalanx_spark-*.whl")))
    assert place.install() == OF_THE_GRID | {"phalanx-spark", "numpy", "pyarrow"}
    place.python(
        "import phalanx, phalanx.archive\n"
        "from phalanx_spark.archive.source import Source\n"
        "with phalanx.start_member_in_thread(phalanx.Config(port=0)) as grid:\n"
        "    grid.map('m')['k'] = 1\n"
        "    source = Source(grid.address, 'phalanx')\n"
        "    phalanx.archive.export_maps(None, source, 'kept')\n"
        "    grid.map('m').clear()\n"
        "    phalanx.archive.restore_maps(None, source, 'kept')\n"
        "    assert dict(grid.map('m')) == {'k': 1}\n"
    )
    told = place.python("import phalanx.spark", status=1)
    assert "phalanx.spark needs pyspark, which is not installed: pip install 'phalanx[spark]'" in told.stderr


def test_all_packages_are_of_one_version_and_license() -> None:
    own = {path.parent.name: tomllib.loads(path.read_text())["project"] for path in PACKAGES.glob("*/pyproject.toml")}
    assert {project.get("version", phalanx.__version__) for project in own.values()} == {phalanx.__version__}
    for name, project in own.items():
        groups = [project.get("dependencies", []), *project.get("optional-dependencies", {}).values()]
        ours = [Requirement(text) for group in groups for text in group]
        pins = {str(each.specifier) for each in ours if each.name in own and each.name != name}
        assert pins <= {f"=={phalanx.__version__}"}, name
        assert (PACKAGES / name / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


@pytest.mark.long  # PySpark is 400 MB
@pytest.mark.timeout(300)
def test_members_clients_and_spark_run_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    place = Place(tmp_path, wheel)
    place.install("[cli,spark]")
    member = subprocess.Popen(
        [tmp_path / "env" / "bin" / "phalanx", "member", "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    try:
        assert member.stdout is not None
        address = json.loads(member.stdout.readline())["address"]
        place.python(
            "import phalanx, phalanx.spark\n"
            "assert 'site-packages' in phalanx.__file__\n"
            f"where = {{'members': {address!r}, 'map': 'flights', 'key': 'id'}}\n"
            "spark = phalanx.spark.session('local[1]')\n"
            "df = spark.createDataFrame([('a', 1.0), ('b', 2.0)], 'id string, price double')\n"
            "df.write.format('phalanx').options(**where).mode('append').save()\n"
            "assert spark.read.format('phalanx').options(**where).load().count() == 2\n"
            f"with phalanx.Client({address!r}) as grid:\n"
            "    assert grid.map('flights')['a'] == {'id': 'a', 'price': 1.0}\n"
        )
    finally:
        member.terminate()
        assert member.wait(30) == 0
