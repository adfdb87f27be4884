"""A member's settings from a file, the environment and a program: the later wins, and what is no setting is refused."""

import pathlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

import phalanx
from phalanx.common.errors import UsageError
from phalanx.common.ids import Address
from phalanx.common.map_config import MapConfig
from phalanx.runtime.settings.config import Config
from phalanx.runtime.settings.load_config import load_config, read_assignments, read_environment


def written(folder: Path, text: str) -> Path:
    path = folder / "member.toml"
    path.write_text(text)
    return path


def test_the_environment_wins_over_the_file_and_a_program_over_both(tmp_path: Path) -> None:
    path = written(tmp_path, 'cluster = "file"\nport = 6000\nzone = "file"\n')
    environ = {"PHALANX_PORT": "6001", "PHALANX_ZONE": "environment", "HOME": "/"}
    config = load_config(path, environ=environ, port=6002)
    assert (config.cluster, config.zone, config.port) == ("file", "environment", 6002)


def test_the_environment_of_the_process_is_read_unless_another_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_CLUSTER", "orders")
    assert phalanx.load_config().cluster == "orders"
    assert phalanx.load_config(environ={}).cluster == "phalanx"
    assert phalanx.Config().cluster == "phalanx", "a program that gives no source reads none"


def as_variable(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(value)
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f'"{name}" = {{backup_count = {each["backup_count"]}}}' for name, each in value.items())
            + "}"
        )
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_every_setting_can_be_a_variable_and_an_assignment() -> None:
    given = Config(
        port=6000,
        seeds=(Address("127.0.0.1:1"), Address("127.0.0.1:2")),
        also_known_as=(Address("node:1"),),
        advertise="localhost",
        secret_file="file",
        event_log="events",
        lite=True,
        capacity_weight=2.5,
        maps={"orders*": MapConfig(backup_count=2)},
    )
    values = {name: value for name, value in msgspec.to_builtins(given).items() if value is not None}
    del values["functions"]  # They are code: a text names modules that have them.
    texts = {name: as_variable(value) for name, value in values.items()}
    assert load_config(environ={f"PHALANX_{name.upper()}": text for name, text in texts.items()}) == given
    assert load_config(environ={}, **read_assignments([f"{name}={text}" for name, text in texts.items()])) == given


@pytest.mark.parametrize(
    ("variable", "text", "told"),
    [
        ("PHALANX_PROT", "1", "environment: there is no setting 'PHALANX_PROT' (did you mean 'PHALANX_PORT'?)"),
        ("PHALANX_ZZZ", "1", "environment: there is no setting 'PHALANX_ZZZ'; settings: "),
        ("PHALANX_PORT", "many", "PHALANX_PORT: port: 'many' is not a port: give a number, or a range"),
        ("PHALANX_PORT", "70000", "PHALANX_PORT: port: 70000 is not between 0 and 65535"),
        ("PHALANX_LITE", "perhaps", "PHALANX_LITE: 'perhaps' does not fit: expected `bool`"),
        ("PHALANX_SEEDS", "here", "'here' is not an address"),
        ("PHALANX_MAPS", "{", "PHALANX_MAPS: '{' is not an inline table of TOML"),
        pytest.param("PHALANX_MAPS", "[" * 5_000, "is not an inline table of TOML", id="nested without end"),
        ("PHALANX_PORT", "tcp://10.0.0.1:5701", "give the pod enableServiceLinks: false"),
        ("PHALANX_SERVICE_HOST", "10.0.0.1", "give the pod enableServiceLinks: false"),
        ("PHALANX_GRID_PORT_5701_TCP_ADDR", "10.0.0.1", "give the pod enableServiceLinks: false"),
    ],
)
def test_a_variable_that_is_wrong_is_named(variable: str, text: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_config(environ={variable: text})
    assert told in str(caught.value)


def test_variables_of_others_are_none_of_a_member() -> None:
    assert read_environment({"PHALANX_PURE": "1", "PATH": "/", "_PHALANX_COMPLETE": "bash"}) == {}


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        ("port", "--set 'port': give name=value"),
        ("prot=1", "--set: there is no setting 'prot' (did you mean 'port'?)"),
        ("partition_count=x", "--set partition_count: 'x' does not fit"),
    ],
)
def test_an_assignment_that_is_wrong_is_named(assignment: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_assignments([assignment])
    assert told in str(caught.value)


def test_an_unknown_name_of_a_program_is_told_with_the_one_that_was_meant() -> None:
    with pytest.raises(UsageError, match="settings: there is no setting 'prot' \\(did you mean 'port'\\?\\)"):
        load_config(environ={}, prot=1)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"port": "here"}, "port: 'here' is not a port: give a number, or a range"),
        ({"port": True}, "port: True is of type bool: expected int | str"),
        ({"partition_count": "271"}, "partition_count: '271' is of type str: expected int"),
        ({"lite": 1}, "lite: 1 is of type int: expected bool"),
        ({"cluster": None}, "cluster: None is of type NoneType: expected str"),
        ({"zone": b"a"}, "zone: b'a' is of type bytes: expected str"),
        ({"memory_limit": 2.5}, "memory_limit: 2.5 is of type float: expected int | str"),
        ({"seeds": 5}, "seeds: 5 is not a list; give a list of addresses"),
        ({"seeds": "127.0.0.1:5701"}, "seeds: '127.0.0.1:5701' is one text; give a list"),
        ({"maps": 5}, "maps: "),
    ],
)
def test_an_argument_of_another_type_is_named_with_what_fits(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        phalanx.Config(**settings)
    assert told in str(caught.value)


def test_files_are_given_as_paths_too() -> None:
    config = phalanx.Config(secret_file=pathlib.Path("a"), event_log=pathlib.Path("b"))  # type: ignore[arg-type]
    assert (config.secret_file, config.event_log) == ("a", "b")


def test_an_address_with_a_name_wins_over_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a program says wins over its environment; what it says twice must be the same."""
    monkeypatch.setenv("PHALANX_CLUSTER", "blue")
    assert load_config(seeds=["phalanx://127.0.0.1:1/green"]).cluster == "green"
    assert load_config(seeds=["phalanx://127.0.0.1:1"]).cluster == load_config(seeds=["127.0.0.1:1"]).cluster == "blue"
    with pytest.raises(UsageError, match="give one of the two"):
        load_config(seeds=["phalanx://127.0.0.1:1/green"], cluster="blue")
    with pytest.raises(UsageError, match="seeds"):
        load_config(seeds=[7])
    monkeypatch.setenv(
        "PHALANX_SEEDS", "phalanx://127.0.0.1:1/green"
    )  # two variables: nobody can tell which one is meant
    with pytest.raises(UsageError, match="give one of the two"):
        load_config()
