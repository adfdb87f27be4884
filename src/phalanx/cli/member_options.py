"""The options of `phalanx member`. Those that are None leave the setting to the environment, the file, or its default."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from phalanx.cli.log_lines import LogFormat
from phalanx.net.secret import SECRET_FILE_VARIABLE
from phalanx.runtime.config import DEFAULT_PORT


class LogLevel(enum.StrEnum):
    """The log level."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


Host = Annotated[
    str | None,
    typer.Option(help="Address to listen on; beyond loopback with a secret only.", show_default="127.0.0.1"),
]
Port = Annotated[
    str | None,
    typer.Option(
        help="Port to listen on; 0: any free one; 5701-5720: the first free one of these.",
        show_default=str(DEFAULT_PORT),
    ),
]
Advertise = Annotated[
    str | None, typer.Option(metavar="HOST", help="Where others reach this member.", show_default="--host")
]
AlsoKnownAs = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Another address under which this member is reached (a mapped port, a virtual address); repeatable.",
    ),
]
SecretFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="File with the cluster's secret.", show_default=f"the one {SECRET_FILE_VARIABLE} names"
    ),
]
Seed = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SEED",
        help="A member to join through: HOST:PORT, dns:NAME:PORT or file:PATH; repeatable. None: begin a cluster.",
    ),
]
JoinAttempts = Annotated[
    int | None,
    typer.Option(help="Rounds over all seeds, of 5 s each, before it gives up.", show_default="5"),
]
ClusterName = Annotated[str | None, typer.Option(help="Name of the cluster.", show_default="phalanx")]
FunctionModules = Annotated[
    list[str] | None,
    typer.Option(metavar="MODULE", help="Module, found from here, with functions that change values; repeatable."),
]
ConfigFile = Annotated[Path | None, typer.Option(metavar="FILE", help="TOML file with any settings of phalanx.Config.")]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any setting of phalanx.Config; repeatable. The variable PHALANX_NAME gives it, too, and a flag wins over it.",
    ),
]
BackupCount = Annotated[int | None, typer.Option(help="Synchronous backups of each partition.", show_default="1")]
PartitionCount = Annotated[int | None, typer.Option(help="Partitions, the same on every member.", show_default="271")]
Zone = Annotated[
    str | None, typer.Option(help="Rack or availability zone: backups are kept in other ones.", show_default="none")
]
Weight = Annotated[
    float | None, typer.Option(help="How much this member is to hold, beside others.", show_default="1.0")
]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Memory of this process, such as 2GiB, or 80% of what its cgroup or machine allows: then it refuses what grows it.",
        show_default="80%",
    ),
]
Lite = Annotated[bool | None, typer.Option("--lite", help="Hold no data: only serve callers.", show_default="off")]
EventLog = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder for this member's events, one JSON object a line.")
]
Protocols = Annotated[
    str | None,
    typer.Option(
        "--serve",
        metavar="NAMES",
        help="Protocols to speak besides the own: hazelcast (docs/hazelcast.md), redis (docs/redis.md).",
        show_default="none",
    ),
]
ServeTokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Token, or name:password, of the clients of these.", show_default="none"),
]
HttpPort = Annotated[
    str | None,
    typer.Option(
        help="Port of metrics, probes and answers in JSON (docs/how-to/monitor.md); 0: any free one; or a range.",
        show_default="none",
    ),
]
HttpHost = Annotated[
    str | None,
    typer.Option(help="Address to listen on for HTTP; beyond loopback with a token only.", show_default="127.0.0.1"),
]
LogLevelChoice = Annotated[LogLevel, typer.Option(help="Log lines go to stderr.")]
LogFormatChoice = Annotated[LogFormat, typer.Option(help="json: one object a line, for what collects logs.")]
JsonReady = Annotated[
    bool, typer.Option("--json", help="When joined, print one JSON line on stdout: address, member, view.")
]
Processes = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        help="Run N members as processes of their own, on ports from --port on: one for each core. One signal stops all.",
    ),
]
StopWithStdin = Annotated[
    bool, typer.Option("--stop-with-stdin", help="Leave at once when stdin ends: for programs that start members.")
]
