"""Makes .venv: exactly the packages of requirements.lock, by hash, and those of this repository as editable installs.

Run by `./run` when the lock, pyproject.toml, the source of phalanx-native or the checkout's place has changed. Standard
library only, because nothing is installed yet. Three decisions:

* uv does the installing, and is itself one of the locked packages: its block of the lock is given to pip first, so
  nothing outside .venv is written and no version of uv is chosen by the day.
* The user's pip settings (index, links, certificate, proxy) hold: uv does not read them, so they are handed over.
* One bootstrap at a time per checkout, by a lock on a file that the kernel releases however the holder ends.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
UV = VENV / "bin" / "uv"
LOCK = ROOT / "requirements.lock"
PACKAGES = sorted(source.parent for source in (ROOT / "packages").glob("*/src"))
"""The folders of the packages in Python."""
NATIVE = ROOT / "packages" / "phalanx-native"
HAS_HEADERS = (
    "import pathlib, sysconfig, sys; sys.exit(not (pathlib.Path(sysconfig.get_path('include')) / 'Python.h').exists())"
)
STAMP = VENV / ".stamp"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"

UV_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
    "trusted-host": "UV_INSECURE_HOST",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
}


class BootstrapError(Exception):
    """What the user has to do before the environment can be made."""


def say(text: str) -> None:
    print(f"run: {text}", file=sys.stderr, flush=True)


def run(*command: str | Path, env: Mapping[str, str] | None = None) -> None:
    """Runs a command in the checkout, its output on stderr: stdout belongs to what ./run was called for."""
    subprocess.run(
        [str(part) for part in command], check=True, cwd=ROOT, env=env, stdout=sys.stderr, stdin=subprocess.DEVNULL
    )


def succeeds(*command: str | Path) -> bool:
    parts = [str(part) for part in command]
    try:
        return subprocess.run(parts, check=False, capture_output=True, stdin=subprocess.DEVNULL).returncode == 0
    except OSError:  # no such program, or not for this machine
        return False


def pip_settings() -> dict[str, str]:
    """pip's effective settings by option name; from the environment alone where there is no pip to ask."""
    listed = ""
    for python in (PYTHON, Path(sys.executable)):
        asked = subprocess.run(
            [str(python), "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
        )
        if asked.returncode == 0:
            listed = asked.stdout
            break
    # pip reads [global], then the command's section, then the environment; the later one holds.
    found: dict[str, str] = {}
    for section in ("global", "install"):
        for match in re.finditer(rf"^{section}\.([\w-]+)='(.*)'$", listed, re.MULTILINE):
            found[match[1]] = match[2].replace("\\n", " ")
    for name, value in os.environ.items():
        if name.startswith("PIP_") and value:
            found[name[4:].lower().replace("_", "-")] = value
    return found


def uv_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment for uv: the caller's own, completed from pip's settings where it says nothing."""
    env = dict(os.environ)
    for option, name in UV_NAMES.items():
        value = settings.get(option, "").strip()
        if value and not env.get(name):
            separator = "," if option == "find-links" else " "
            env[name] = separator.join(value.split())
    if "extra-index-url" in settings:
        # As pip does: the best match of all indexes. The hashes of the lock say what may be installed.
        env.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    env["VIRTUAL_ENV"] = str(VENV)
    return env


def locked_block(package: str) -> str:
    """The lines of the lock that pin one package with its hashes."""
    match = re.search(rf"^{re.escape(package)}==.*\n(?:[ \t]+--hash=.*\n)+", LOCK.read_text(), re.MULTILINE)
    if match is None:
        raise BootstrapError(f"{LOCK.name} does not pin {package}. Restore the file: git checkout {LOCK.name}")
    return match[0]


def install_package(what: str, *candidates: str) -> bool:
    """Installs the first of these packages that there is with apt-get, where rights allow. `what` is missing."""
    if shutil.which("apt-get") is None:
        return False
    root: tuple[str, ...] = () if os.geteuid() == 0 else ("sudo", "-n")
    if root and not succeeds(*root, "true"):
        return False
    succeeds(*root, "apt-get", "update", "-qq")
    for package in candidates:
        say(f"there is no {what}; installing {package} with apt-get")
        if succeeds(*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq", package):
            return True
    return False


def install_ensurepip() -> bool:
    """On Debian and its kin ensurepip is a package of its own: installs it where rights allow."""
    return install_package(f"ensurepip in {sys.executable}", f"python{VERSION}-venv", "python3-venv")


def create_venv() -> None:
    """Makes an empty .venv by the first of the known ways that this machine has."""
    python = sys.executable
    ways: tuple[Callable[[], bool], ...] = (
        lambda: succeeds(python, "-m", "venv", "--clear", VENV),
        lambda: succeeds(python, "-m", "virtualenv", "--clear", "-p", python, VENV),
        lambda: bool(shutil.which("virtualenv")) and succeeds("virtualenv", "--clear", "-p", python, VENV),
        lambda: bool(shutil.which("uv")) and succeeds("uv", "venv", "--clear", "--seed", "--python", python, VENV),
        # Without ensurepip, another pip can still install into the new environment.
        lambda: (
            succeeds(python, "-m", "pip", "--version")
            and succeeds(python, "-m", "venv", "--clear", "--without-pip", VENV)
            and succeeds(python, "-m", "pip", "--python", PYTHON, "--version")
        ),
        lambda: install_ensurepip() and succeeds(python, "-m", "venv", "--clear", VENV),
    )
    for way in ways:
        if way():
            return
    shutil.rmtree(VENV, ignore_errors=True)  # half an environment would look like one to the next run
    raise BootstrapError(
        f"{python} cannot make a virtual environment: it lacks ensurepip, and there is no pip, virtualenv or uv beside it.\n"
        f"  Debian, Ubuntu: apt-get install python{VERSION}-venv   (or python3-venv)\n"
        "  elsewhere:      install python3-pip, virtualenv or uv, or set PYTHON to an interpreter with ensurepip"
    )


def install_uv() -> None:
    block = locked_block("uv")
    wanted = block.split()[0].partition("==")[2]
    if uv_version() == wanted:
        return
    say(f"installing uv {wanted} into .venv")
    pin = VENV / "uv.lock.txt"
    pin.write_text(block)
    options = ("install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "-r", pin)
    if succeeds(PYTHON, "-m", "pip", "--version"):
        run(PYTHON, "-m", "pip", *options)
    else:
        run(sys.executable, "-m", "pip", "--python", PYTHON, *options)
    pin.unlink()


def uv_version() -> str:
    if not succeeds(UV, "--version"):
        return ""
    answer = subprocess.run([str(UV), "--version"], capture_output=True, text=True, check=False).stdout.split()
    return answer[1]


def install_locked(env: Mapping[str, str]) -> None:
    first = not (VENV / "bin" / "pyspark").exists()
    say("installing the packages of requirements.lock into .venv" + (": PySpark alone is 450 MB" if first else ""))
    # The lock is the build constraint too: source archives are built with the locked setuptools.
    # Compiled once here: Spark starts a Python process for every step that it plans.
    sync = ("pip", "sync", "--quiet", "--compile-bytecode", "--require-hashes")
    run(UV, *sync, "--build-constraints", LOCK, LOCK, env=env)
    ours = [part for package in PACKAGES for part in ("--editable", package)]
    run(UV, "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", *ours, env=env)
    # Else the processes that begin side by side at first (those of the tests) would each compile all of it.
    run(PYTHON, "-m", "compileall", "-q", "-j", "0", *(package / "src" for package in PACKAGES))


def install_native(env: Mapping[str, str]) -> None:
    """Builds phalanx-native into .venv, where there is a C compiler: Phalanx is the same without it, only slower.

    With CI set, what is missing is installed where rights allow, as no test may be skipped there.
    """
    has_compiler = shutil.which("cc") is not None
    asked = subprocess.run([str(PYTHON), "-c", HAS_HEADERS], check=False, capture_output=True)
    has_headers = asked.returncode == 0
    if env.get("CI"):
        has_compiler = has_compiler or install_package("C compiler", "gcc")
        has_headers = has_headers or install_package("Python.h", f"python{VERSION}-dev", "python3-dev")
    if not (has_compiler and has_headers):
        missing = "Python.h" if has_compiler else "a C compiler (cc)"
        say(f"{missing} is not here, so phalanx-native is not built: bulk calls are slower, all else is the same")
        return
    say("compiling phalanx-native")
    try:
        run(UV, "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--reinstall", NATIVE, env=env)
    except subprocess.CalledProcessError:
        say("phalanx-native could not be compiled (see above): bulk calls are slower, all else is the same")


def complete_activation() -> None:
    """Let `. .venv/bin/activate` set what `./run` sets, so that Spark works the same in both: on loopback, with this Python."""
    script = VENV / "bin" / "activate"
    text = script.read_text()
    if "SPARK_LOCAL_IP" not in text:
        lines = [
            'SPARK_LOCAL_IP="${SPARK_LOCAL_IP:-127.0.0.1}"',
            'PYSPARK_PYTHON="$VIRTUAL_ENV/bin/python"',
            'PYSPARK_DRIVER_PYTHON="$VIRTUAL_ENV/bin/python"',
            "export SPARK_LOCAL_IP PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON",
        ]
        script.write_text(text + "\n".join(["", "# As ./run does.", *lines, ""]))


def write_lock(options: list[str]) -> None:
    """Resolves anew what the packages of this repository need, and what the root names for work on them, for every system and Python, keeping locked versions that still fit."""
    groups = [part for group in ("dev", "docs", "bench", "build") for part in ("--group", group)]
    what = ("--universal", "--python-version", "3.11", "--all-extras", *groups)
    # The lock names no index and no links: where packages come from is the user's affair, what they are is the hashes'.
    how = ("--generate-hashes", "--no-emit-index-url", "--no-emit-find-links", "--custom-compile-command", "./run lock")
    # The lock holds what others publish: a package of this repository would stand in it as a path of this machine.
    ours = [part for package in PACKAGES for part in ("--no-emit-package", package.name)]
    projects = [package / "pyproject.toml" for package in PACKAGES]
    env = uv_environment(pip_settings())
    run(UV, "pip", "compile", "--quiet", *what, *how, *ours, "--output-file", LOCK, *options, *projects, env=env)


def bootstrap(stamp: str) -> None:
    with (ROOT / ".venv.lock").open("w") as mutex:
        fcntl.flock(mutex, fcntl.LOCK_EX)
        if STAMP.exists() and STAMP.read_text() == stamp:
            return  # another process made it while this one waited
        moved = STAMP.exists() and not STAMP.read_text().startswith(f"{ROOT} ")  # its scripts name the old place
        if moved or not succeeds(PYTHON, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"):
            say(f"making .venv with Python {sys.version.split()[0]}")
            create_venv()
        STAMP.unlink(missing_ok=True)
        settings = pip_settings()
        install_uv()
        install_locked(uv_environment(settings))
        install_native(uv_environment(settings))
        complete_activation()
        STAMP.write_text(stamp)


def main() -> int:
    try:
        if sys.argv[1] == "--lock":
            write_lock(sys.argv[2:])
        else:
            bootstrap(sys.argv[1])
    except BootstrapError as error:
        say(str(error))
        return 1
    except subprocess.CalledProcessError as error:
        say(f"this command failed with status {error.returncode}: {' '.join(error.cmd)}")
        say("its own message is above; pip's settings (pip config list) say which package index was asked")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
