"""The command line of `phalanx member`: its options, and how a plain one is read without typer.

Typer, and what it loads to show help and errors, is a third of the time in which a member starts. `read_plain` needs nothing of
that. It reads lines as typer would, and leaves all others to typer: those that are wrong, that ask for help, or
whose values look like anything but values.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from phalanx.cli.log_lines import LogFormat
from phalanx.common.seeds import DEFAULT_PORT
from phalanx.net.secret import SECRET_FILE_VARIABLE


class LogLevel(enum.StrEnum):
    """The log level."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class MemberOption(NamedTuple):
    """What people are told of an option.

    `flag`: its name, if that is not the field's; always for one without a value, because typer would also accept its opposite.
    `setting`: the setting that it gives, if that is not called as the field is.
    """

    help: str
    flag: str = ""
    setting: str = ""
    metavar: str | None = None
    shown_default: str = ""
    minimum: int | None = None


class MemberLine(msgspec.Struct, frozen=True, kw_only=True):
    """A command line. What is None is left to the environment, the configuration file, or the setting's default."""

    host: Annotated[
        str | None,
        MemberOption("Address to listen on; beyond loopback only with a secret.", shown_default="127.0.0.1"),
    ] = None
    port: Annotated[
        str | None,
        MemberOption(
            "Port to listen on; 0: any free port; 5701-5720: the first free port of this range.",
            shown_default=str(DEFAULT_PORT),
        ),
    ] = None
    advertise: Annotated[
        str | None,
        MemberOption("Host or address by which others reach this member.", metavar="HOST", shown_default="--host"),
    ] = None
    also_known_as: Annotated[
        list[str] | None,
        MemberOption(
            "Another address under which this member is reached (a mapped port, a virtual address); repeatable.",
            metavar="HOST:PORT",
        ),
    ] = None
    secret_file: Annotated[
        Path | None,
        MemberOption(
            "File with the cluster's secret.", metavar="FILE", shown_default=f"the one {SECRET_FILE_VARIABLE} names"
        ),
    ] = None
    seed: Annotated[
        list[str] | None,
        MemberOption(
            "A member to join through: HOST:PORT, dns:NAME:PORT, file:PATH or phalanx://HOST,HOST/CLUSTER; repeatable. Without it: form a cluster.",
            setting="seeds",
            metavar="SEED",
        ),
    ] = None
    join_attempts: Annotated[
        int | None,
        MemberOption("How often to try all seeds, 5 s each time, before the member gives up.", shown_default="5"),
    ] = None
    cluster: Annotated[str | None, MemberOption("Name of the cluster.", shown_default="phalanx")] = None
    functions: Annotated[
        list[str] | None,
        MemberOption("Module with functions that change values, also in this folder; repeatable.", metavar="MODULE"),
    ] = None
    config: Annotated[Path | None, MemberOption("TOML file with any settings of phalanx.Config.", metavar="FILE")] = (
        None
    )
    assignments: Annotated[
        list[str] | None,
        MemberOption(
            "Any setting of phalanx.Config; repeatable. The variable PHALANX_NAME sets it too, but a flag has priority.",
            flag="--set",
            metavar="NAME=VALUE",
        ),
    ] = None
    backup_count: Annotated[int | None, MemberOption("Synchronous backups of each partition.", shown_default="1")] = (
        None
    )
    partition_count: Annotated[
        int | None, MemberOption("Partitions, the same on every member.", shown_default="271")
    ] = None
    zone: Annotated[
        str | None, MemberOption("Rack or availability zone: backups are kept in other zones.", shown_default="none")
    ] = None
    weight: Annotated[
        float | None,
        MemberOption(
            "How much data this member holds, compared with the others.", setting="capacity_weight", shown_default="1.0"
        ),
    ] = None
    memory_limit: Annotated[
        str | None,
        MemberOption(
            "Memory of this process, such as 2GiB, or 80% of what its cgroup or machine allows: above it, it refuses writes that need more.",
            metavar="SIZE",
            shown_default="80%",
        ),
    ] = None
    lite: Annotated[
        bool | None, MemberOption("Hold no data, and only serve callers.", flag="--lite", shown_default="off")
    ] = None
    event_log: Annotated[
        Path | None, MemberOption("Folder for this member's events, one JSON object on each line.", metavar="DIR")
    ] = None
    protocols: Annotated[
        str | None,
        MemberOption(
            "Further protocols to speak: hazelcast (docs/hazelcast.md), redis (docs/redis.md).",
            flag="--serve",
            setting="serve",
            metavar="NAMES",
            shown_default="none",
        ),
    ] = None
    serve_token_file: Annotated[
        Path | None,
        MemberOption("Token, or name:password, for clients of these protocols.", metavar="FILE", shown_default="none"),
    ] = None
    http_port: Annotated[
        str | None,
        MemberOption(
            "Port for metrics, probes and answers in JSON (docs/how-to/monitor.md); 0: any free port; or a range.",
            shown_default="none",
        ),
    ] = None
    http_host: Annotated[
        str | None,
        MemberOption("Address to listen on for HTTP; beyond loopback only with a token.", shown_default="127.0.0.1"),
    ] = None
    log_level: Annotated[LogLevel, MemberOption("Level of the log lines, which go to stderr.")] = LogLevel.INFO
    log_format: Annotated[LogFormat, MemberOption("json: one object on each line, for programs that collect logs.")] = (
        LogFormat.TEXT
    )
    json_ready: Annotated[
        bool, MemberOption("When joined, print one JSON line on stdout: address, member, view.", flag="--json")
    ] = False
    processes: Annotated[
        int,
        MemberOption(
            "Run N members, each in its own process, on the ports from --port on: one for each core. One signal stops all.",
            metavar="N",
            minimum=1,
        ),
    ] = 1
    stop_with_stdin: Annotated[
        bool,
        MemberOption("Leave at once when stdin is closed: for programs that start members.", flag="--stop-with-stdin"),
    ] = False


class LineField(NamedTuple):
    """A field of `MemberLine`, and the option that gives it."""

    name: str
    kind: Any
    """Its type, as it is annotated."""
    default: Any
    option: MemberOption

    @property
    def flag(self) -> str:
        """Return the option's name on the command line."""
        return self.option.flag or f"--{self.name.replace('_', '-')}"


def line_fields() -> list[LineField]:
    """Return the fields in the order in which help shows them."""
    hints = get_type_hints(MemberLine, include_extras=True)
    found = []
    for name, default in zip(MemberLine.__struct_fields__, MemberLine.__struct_defaults__, strict=True):
        kind, option = get_args(hints[name])
        found.append(LineField(name, kind, default, option))
    return found


def read_plain(arguments: Sequence[str]) -> MemberLine | None:
    """Return what the line says; None: typer must read it."""
    fields = {field.flag: field for field in line_fields()}
    values: dict[str, Any] = {}
    left = iter(arguments)
    for argument in left:
        flag, equals, text = argument.partition("=")
        if (field := fields.get(flag)) is None:
            return None
        kind, is_repeatable = _plain(field.kind)
        if kind is bool:
            if equals:
                return None
            values[field.name] = True
            continue
        text = text if equals else next(left, "")
        if not text or text.startswith("-") or (value := _READERS.get(kind, _member_of(kind))(text)) is None:
            return None
        if field.option.minimum is not None and value < field.option.minimum:
            return None
        if is_repeatable:
            values.setdefault(field.name, []).append(value)
        else:
            values[field.name] = value
    return MemberLine(**values)


def _plain(kind: Any) -> tuple[type, bool]:
    """Return the type of one value of an option, and whether there can be several."""
    if get_origin(kind) is UnionType:
        kind = next(each for each in get_args(kind) if each is not type(None))
    if get_origin(kind) is list:
        return get_args(kind)[0], True
    return kind, False


def _whole_number(text: str) -> int | None:
    return int(text) if re.fullmatch("0|[1-9][0-9]{0,8}", text) else None


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) else None


def _member_of(kind: Any) -> Callable[[str], Any]:
    """Return what finds the choice of an enum of texts."""
    return lambda text: next((each for each in kind if each.value == text), None)


_READERS: Final[dict[type, Callable[[str], Any]]] = {str: str, Path: Path, int: _whole_number, float: _number}
