"""How ./run finds an interpreter and a Java, and what it hands over of the user's pip settings."""

import importlib.util
import os
import stat
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from support.roots import ROOT, SCRIPTS

PACKAGES_SCRIPT, JAVA_SCRIPT = (SCRIPTS / name for name in ("packages.sh", "java.sh"))


@pytest.fixture(scope="module")
def bootstrap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", SCRIPTS / "bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def java_home(path: Path, version: str) -> Path:
    """A Java that says what a real one says when asked for its version and its home."""
    program(
        path / "bin" / "java",
        f"echo '    java.home = {path}' >&2\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n",
    )
    return path


def use_java(tmp_path: Path, path: Path, how: str = "use_java", **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs use_java with nothing on the PATH but `path` and the few tools that the script itself needs."""
    tools = tmp_path / "tools"
    tools.mkdir(exist_ok=True)
    for name in ("sed", "sort", "cat", "id", "env"):
        if not (tools / name).exists():
            (tools / name).symlink_to(next(Path(p) / name for p in ("/usr/bin", "/bin") if (Path(p) / name).exists()))
    env = {"PATH": f"{path}:{tools}", "HOME": str(tmp_path), **environment}
    command = [
        "/bin/sh",
        "-euc",
        f'. "{PACKAGES_SCRIPT}"; . "{JAVA_SCRIPT}"; java_usual_places="{tmp_path}/jvm/*"; {how}; echo "${{JAVA_HOME:-none}}"',
    ]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=30)


def test_java_home_comes_first(tmp_path: Path) -> None:
    asked = java_home(tmp_path / "asked", "21.0.1")
    on_path = java_home(tmp_path / "on-path", "17.0.15")
    assert use_java(tmp_path, on_path / "bin", JAVA_HOME=str(asked)).stdout == f"{asked}\n"


def test_a_java_home_that_is_too_old_is_named_and_passed_over(tmp_path: Path) -> None:
    old = java_home(tmp_path / "old", "1.8.0_392")
    on_path = java_home(tmp_path / "on-path", "17.0.15")
    result = use_java(tmp_path, on_path / "bin", JAVA_HOME=str(old))
    assert result.stdout == f"{on_path}\n"
    assert f"JAVA_HOME={old} is no Java 17 or newer" in result.stderr


def test_of_the_usual_places_the_oldest_that_fits_is_taken(tmp_path: Path) -> None:
    for name, version in (("a", "25.0.3"), ("b", "11.0.2"), ("c", "17.0.1"), ("d", "21")):
        java_home(tmp_path / "jvm" / name, version)
    old = java_home(tmp_path / "old", "1.8.0_392")
    assert use_java(tmp_path, old / "bin").stdout == f"{tmp_path / 'jvm' / 'c'}\n"


def test_the_package_manager_is_asked_last(tmp_path: Path) -> None:
    late = tmp_path / "jvm" / "late"
    java_home(tmp_path / "kept", "17.0.1")
    program(
        tmp_path / "bin" / "apt-get",
        f'[ "$1" = install ] || exit 0\n/bin/mkdir -p {late.parent}\n/bin/cp -r {tmp_path}/kept {late}\n',
    )
    program(tmp_path / "bin" / "sudo", '[ "$1" = -n ] && shift\nexec "$@"\n')
    result = use_java(tmp_path, tmp_path / "bin")
    assert result.stdout == f"{late}\n"
    assert "installing openjdk-17-jre-headless with apt-get" in result.stderr


def test_without_any_java_the_message_says_what_to_install_and_how_to_point_to_one(tmp_path: Path) -> None:
    result = use_java(tmp_path, tmp_path / "empty")
    assert result.returncode == 1
    assert "openjdk-17-jre-headless" in result.stderr
    assert "JAVA_HOME=/path/to/java ./run" in result.stderr


def test_a_java_is_offered_and_remembered_until_the_path_leads_elsewhere(tmp_path: Path) -> None:
    offer = f'offer_java "{tmp_path}/kept"'
    usual = java_home(tmp_path / "jvm" / "a", "17.0.1")
    assert use_java(tmp_path, tmp_path / "empty", offer).stdout == f"{usual}\n"
    program(usual / "bin" / "java", f"touch {tmp_path}/asked")
    assert use_java(tmp_path, tmp_path / "empty", offer).stdout == f"{usual}\n"
    assert not (tmp_path / "asked").exists(), "it is known already"
    other = java_home(tmp_path / "on-path", "21.0.1")
    assert use_java(tmp_path, other / "bin", offer).stdout == f"{other}\n"


def test_where_no_java_can_be_offered_nothing_fails_and_nothing_is_installed(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "apt-get", f"touch {tmp_path}/installed\n")
    program(tmp_path / "bin" / "sudo", "exit 0\n")
    result = use_java(tmp_path, tmp_path / "bin", f'offer_java "{tmp_path}/kept"', JAVA_HOME="")
    assert (result.returncode, result.stdout, result.stderr) == (0, "none\n", "")
    assert not (tmp_path / "installed").exists()
    assert not (tmp_path / "kept").exists()


def offer_programs(tmp_path: Path, install: str, *, has_ip: bool = True) -> list[str]:
    """The packages that are asked for where `nft` is missing, and apt-get ends an installation so."""
    if has_ip:
        program(tmp_path / "bin" / "ip", "")
    program(tmp_path / "bin" / "sudo", '[ "$1" = -n ] && shift\nexec "$@"\n')
    program(
        tmp_path / "bin" / "apt-get",
        f'[ "$1" = install ] || exit 0\nfor name; do :; done\necho "$name" >>{tmp_path}/asked\n{install}\n',
    )
    result = use_java(tmp_path, tmp_path / "bin", "offer_test_programs; echo over")
    assert result.stdout.startswith("over\n"), result.stderr
    return (tmp_path / "asked").read_text().split()


def test_programs_that_tests_start_are_installed_where_they_are_missing(tmp_path: Path) -> None:
    assert offer_programs(tmp_path, "exit 0") == ["nftables", "chromium", "redis-tools", "strace", "zsh"]


def test_a_program_that_cannot_be_installed_ends_nothing(tmp_path: Path) -> None:
    assert offer_programs(tmp_path, "exit 100", has_ip=False) == [
        "iproute2",
        "nftables",
        "chromium",
        "redis-tools",
        "strace",
        "zsh",
    ]


def test_without_rights_no_program_is_installed_and_nothing_ends(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "id", "echo 1000\n")
    program(tmp_path / "bin" / "sudo", "exit 1\n")
    program(tmp_path / "bin" / "apt-get", f"touch {tmp_path}/asked\n")
    result = use_java(tmp_path, tmp_path / "bin", "offer_test_programs; echo over")
    assert result.stdout.startswith("over\n"), result.stderr
    assert not (tmp_path / "asked").exists()


def run_script(path: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "run"), *arguments]
    env = {**os.environ, "PATH": path, **environment}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)


def test_an_unknown_command_is_refused_with_the_list() -> None:
    result = run_script(os.environ["PATH"], "dance")
    assert result.returncode == 2
    assert "there is no command 'dance'" in result.stderr
    assert "./run COMMAND" in result.stderr


def test_interpreters_keep_what_they_compiled_whatever_the_environment_says() -> None:
    code = "import sys; print(sys.dont_write_bytecode)"
    result = run_script(os.environ["PATH"], "python", "-c", code, PYTHONDONTWRITEBYTECODE="1")
    assert result.stdout == "False\n", result.stderr


def test_pip_settings_of_every_kind_reach_uv(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*bootstrap.UV_NAMES.values(), "UV_INDEX_STRATEGY"]:
        monkeypatch.delenv(name, raising=False)
    settings = {
        "index-url": "https://mirror.example/simple",
        "extra-index-url": "https://one.example/simple https://two.example/simple",
        "find-links": "/a /b",
        "cert": "/certs.pem",
        "trusted-host": "mirror.example",
    }
    env = bootstrap.uv_environment(settings)
    assert env["UV_DEFAULT_INDEX"] == "https://mirror.example/simple"
    assert env["UV_INDEX"] == "https://one.example/simple https://two.example/simple"
    assert env["UV_FIND_LINKS"] == "/a,/b"
    assert env["SSL_CERT_FILE"] == "/certs.pem"
    assert env["UV_INSECURE_HOST"] == "mirror.example"
    assert env["UV_INDEX_STRATEGY"] == "unsafe-best-match"


def test_what_the_user_told_uv_itself_wins(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://uv.example/simple")
    env = bootstrap.uv_environment({"index-url": "https://pip.example/simple"})
    assert env["UV_DEFAULT_INDEX"] == "https://uv.example/simple"


def test_pip_settings_are_read_from_files_and_environment(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = https://file.example/simple\nfind-links =\n    /one\n    /two\ntimeout = 7\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_TIMEOUT", "9")
    for name in ("PIP_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    settings = bootstrap.pip_settings()
    assert settings["index-url"] == "https://file.example/simple"
    assert settings["find-links"].split() == ["/one", "/two"]
    assert settings["timeout"] == "9"


def test_the_installer_is_taken_from_the_lock_with_its_hashes(bootstrap: ModuleType) -> None:
    lines = bootstrap.locked_block("uv").splitlines()
    assert lines[0].startswith("uv==")
    assert lines[1:]
    assert all("--hash=sha256:" in line for line in lines[1:])


def test_a_lock_without_the_installer_is_an_error_with_the_remedy(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bootstrap, "LOCK", tmp_path / "requirements.lock")
    (tmp_path / "requirements.lock").write_text("mmh3==5.0\n    --hash=sha256:00\n")
    with pytest.raises(bootstrap.BootstrapError, match=r"does not pin uv.*git checkout requirements\.lock"):
        bootstrap.locked_block("uv")


def test_the_activated_environment_has_what_run_sets(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bootstrap, "VENV", tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "activate").write_text(f"VIRTUAL_ENV={tmp_path}\nexport VIRTUAL_ENV\n")
    bootstrap.complete_activation()
    bootstrap.complete_activation()  # again, after the lock has changed

    def activated(**environment: str) -> list[str]:
        command = [".", f"{tmp_path}/bin/activate;", "echo", "$SPARK_LOCAL_IP", "$PYSPARK_PYTHON"]
        done = subprocess.run(["/bin/sh", "-euc", " ".join(command)], env=environment, capture_output=True, text=True)
        return done.stdout.split()

    assert activated() == ["127.0.0.1", f"{tmp_path}/bin/python"]
    assert activated(SPARK_LOCAL_IP="10.0.0.7")[0] == "10.0.0.7"
    assert (tmp_path / "bin" / "activate").read_text().count("export SPARK_LOCAL_IP") == 1
