"""`phalanx member`: one member as a process of its own.

| status | meaning |
|---|---|
| 0 | it has left, or was told to stop before it had joined |
| 1 | it could not be started, or joined no cluster: stderr says why |
| 2 | the command line or the configuration is wrong |
| 75 | it was told to leave, and its time to hand over was over before others had all that it held: what has no backup is lost |
| 70 | it has failed and ended as in a crash: others take over. The last words on stderr say why (`runtime/failure.py`) |

With `--processes` it is the greatest status of the members that were there in the end; 128 + N is that of one which signal N
has ended.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import typer

from phalanx.cli import member_options as o
from phalanx.cli.app import FAILED, in_one_line
from phalanx.cli.log_lines import LogFormat, log_to_stderr
from phalanx.cli.member_group import MemberGroup
from phalanx.cli.member_process import print_ready, serve
from phalanx.common.errors import PhalanxError, UsageError
from phalanx.runtime.config import Config
from phalanx.runtime.configuration import load_member_config, read_assignments
from phalanx.runtime.connection_limits import raise_descriptor_limit
from phalanx.runtime.event_loop import new_event_loop
from phalanx.runtime.failure import ProcessEnd
from phalanx.runtime.memory_limit import shared_limit

LAST_LINES_WITHIN_S = 2.0
"""How long to wait at the end until the last log lines are written: nobody may be reading stderr."""


def member(
    host: o.Host = None,
    port: o.Port = None,
    advertise: o.Advertise = None,
    also_known_as: o.AlsoKnownAs = None,
    secret_file: o.SecretFile = None,
    seed: o.Seed = None,
    join_attempts: o.JoinAttempts = None,
    cluster: o.ClusterName = None,
    functions: o.FunctionModules = None,
    config: o.ConfigFile = None,
    assignments: o.Assignments = None,
    backup_count: o.BackupCount = None,
    partition_count: o.PartitionCount = None,
    zone: o.Zone = None,
    weight: o.Weight = None,
    memory_limit: o.MemoryLimit = None,
    lite: o.Lite = None,
    event_log: o.EventLog = None,
    protocols: o.Protocols = None,
    serve_token_file: o.ServeTokenFile = None,
    http_port: o.HttpPort = None,
    http_host: o.HttpHost = None,
    log_level: o.LogLevelChoice = o.LogLevel.INFO,
    log_format: o.LogFormatChoice = LogFormat.TEXT,
    json_ready: o.JsonReady = False,
    processes: o.Processes = 1,
    stop_with_stdin: o.StopWithStdin = False,
) -> None:
    """Run a member of a cluster until SIGTERM, SIGHUP (a terminal that is closed) or SIGINT.

    The first signal makes it hand over what it holds and leave; a second one, but SIGHUP, makes it leave at once.
    """
    flags = {
        "host": host,
        "port": port,
        "advertise": advertise,
        "also_known_as": also_known_as or None,
        "secret_file": str(secret_file) if secret_file is not None else None,
        "seeds": seed or None,
        "join_attempts": join_attempts,
        "cluster": cluster,
        "functions": functions or None,
        "backup_count": backup_count,
        "partition_count": partition_count,
        "zone": zone,
        "capacity_weight": weight,
        "memory_limit": memory_limit,
        "lite": lite,
        "event_log": str(event_log) if event_log is not None else None,
        "serve": [name.strip() for name in protocols.split(",")] if protocols is not None else None,
        "serve_token_file": str(serve_token_file) if serve_token_file is not None else None,
        "http_port": http_port,
        "http_host": http_host,
    }
    flags = {name: value for name, value in flags.items() if value is not None}
    settings = load_member_config(config, read_assignments(assignments or []) | flags)
    settings.find_secret()  # a file that cannot be read is wrong usage, too
    lines = log_to_stderr(log_level.value.upper(), log_format)
    if processes > 1:
        status = _run_group(
            processes,
            settings,
            flags,
            assignments or [],
            config,
            log_level,
            log_format,
            tells=json_ready,
            stop_with_stdin=stop_with_stdin,
        )
        lines.finish(LAST_LINES_WITHIN_S)
        raise typer.Exit(status)
    raise_descriptor_limit()
    on_failure = ProcessEnd(lines.finish)
    on_ready = print_ready if json_ready else None
    status = 0
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            status = runner.run(serve(settings, on_ready, stop_with_stdin=stop_with_stdin, on_failure=on_failure))
        except PhalanxError as error:  # from here on nothing is wrong usage: a port is taken, a seed does not admit us
            lines.tell(in_one_line(str(error)))
            status = FAILED
    lines.finish(LAST_LINES_WITHIN_S)
    raise typer.Exit(status)


def _run_group(
    count: int,
    settings: Config,
    flags: dict[str, Any],
    assignments: list[str],
    file: Path | None,
    log_level: o.LogLevel,
    log_format: LogFormat,
    *,
    tells: bool,
    stop_with_stdin: bool,
) -> int:
    """Run several members with these settings, and return the exit status."""
    ports = settings.ports
    if ports[0] and ports[0] + count > 65_536:
        raise UsageError(f"--processes {count} with --port {ports[0]}: there are no ports beyond 65535")
    if 1 < len(ports) < count:
        raise UsageError(f"--processes {count} with --port {settings.port}: these are {len(ports)} ports")
    if len(settings.http_ports) and settings.http_ports != range(1) and len(settings.http_ports) < count:
        raise UsageError(
            f"--processes {count} with http_port {settings.http_port}: give a range of as many ports, or 0 for any free ones"
        )
    if settings.also_known_as:
        raise UsageError("--also-known-as names one member: give it to a member that is started alone")
    own, names = ("port", "seeds", "memory_limit"), {"capacity_weight": "--weight"}
    options = [
        "--log-level",
        log_level.value,
        f"--log-format={log_format.value}",
        f"--memory-limit={shared_limit(settings.memory_limit, count)}",
    ]
    if file is not None:
        options += ["--config", str(file)]
    options += [f"--set={each}" for each in assignments if each.partition("=")[0] not in own]
    for name, value in flags.items():
        if name == "lite":
            options += ["--lite"] if value else []
        elif name == "functions":
            options += [f"--functions={module}" for module in value]
        elif name == "serve":
            options.append(f"--serve={','.join(value)}")
        elif name not in own:
            options.append(f"{names.get(name) or '--' + name.replace('_', '-')}={value}")
    seeds = [str(seed) for seed in settings.seeds]
    return MemberGroup(count, ports[0], seeds, options, tells=tells, stop_with_stdin=stop_with_stdin).run()
