"""`phalanx member`: one member as a process of its own.

| status | meaning |
|---|---|
| 0 | it has left, or was told to stop before it had joined |
| 1 | it could not be started, or joined no cluster: stderr says why |
| 2 | the command line or the configuration is wrong, or its data_dir cannot be used as it is |
| 75 | it was told to leave, and its time to hand over ended before others had all its data: data without a backup is lost |
| 71 | its disk has failed: it has left, and others hold all that it had; or a write hung, and it has ended as in a crash |
| 70 | it has failed and ended as in a crash: others take over. The last words on stderr say why (`runtime/process/failure.py`) |

With `--processes` it is the greatest status of the members that were there in the end; 128 + N is that of one which signal N
has ended.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from phalanx.cli.failures import FAILED, WRONG_USAGE, in_one_line
from phalanx.cli.log_lines import log_to_stderr
from phalanx.cli.member_group import MemberGroup
from phalanx.cli.member_line import MemberLine, line_fields
from phalanx.cli.member_process import print_ready, serve
from phalanx.common.errors import DiskLost, PhalanxError, UsageError
from phalanx.common.words import counted
from phalanx.runtime.connections.connection_limits import raise_descriptor_limit
from phalanx.runtime.disk.disk_thread import DISK_FAILED_STATUS
from phalanx.runtime.disk.member_disk import DataFolderRefused
from phalanx.runtime.process.event_loop import new_event_loop
from phalanx.runtime.process.failure import ProcessEnd
from phalanx.runtime.settings.config import Config
from phalanx.runtime.settings.load_config import load_member_config, parse_setting, read_assignments
from phalanx.runtime.settings.memory_limit import shared_limit

LAST_LINES_WITHIN_S = 2.0
"""How long to wait at the end until the last log lines are written: perhaps nobody reads stderr."""


def run_member(line: MemberLine) -> int:
    """Run a member, or a group of them, until it has ended. Return the exit status; raises what is wrong with the settings."""
    flags = _flags_of(line)
    settings = load_member_config(line.config, read_assignments(line.assignments or []) | flags)
    settings.find_secret()  # a file that cannot be read is wrong usage, too
    lines = log_to_stderr(line.log_level.value.upper(), line.log_format)
    if line.processes > 1:
        status = _run_group(line, settings, flags)
        lines.finish(LAST_LINES_WITHIN_S)
        return status
    raise_descriptor_limit()
    on_failure = ProcessEnd(lines.finish)
    on_ready = print_ready if line.json_ready else None
    status = 0
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            status = runner.run(serve(settings, on_ready, stop_with_stdin=line.stop_with_stdin, on_failure=on_failure))
        except DiskLost as error:
            lines.tell(in_one_line(str(error)))
            status = DISK_FAILED_STATUS
        except PhalanxError as error:  # only a folder is wrong usage now: a port is taken, a seed does not admit us
            lines.tell(in_one_line(str(error)))
            status = WRONG_USAGE if isinstance(error, DataFolderRefused) else FAILED
    lines.finish(LAST_LINES_WITHIN_S)
    return status


def _flags_of(line: MemberLine) -> dict[str, Any]:
    """Return the settings that have an option of their own, where it was given."""
    flags = {}
    for field in line_fields():
        name, value = field.option.setting or field.name, getattr(line, field.name)
        if name in Config.__struct_fields__ and value is not None:
            flags[name] = parse_setting(name, str(value), field.flag) if isinstance(value, str | Path) else value
    return flags


def _run_group(line: MemberLine, settings: Config, flags: dict[str, Any]) -> int:
    """Run several members with these settings, and return the exit status."""
    count = line.processes
    ports = settings.ports
    if ports[0] and ports[0] + count > 65_536:
        raise UsageError(f"--processes {count} with --port {ports[0]}: there are no ports beyond 65535")
    if 1 < len(ports) < count:
        raise UsageError(
            f"--processes {count} with --port {settings.port}: this range has {counted(len(ports), 'port')}"
        )
    if len(settings.http_ports) and settings.http_ports != range(1) and len(settings.http_ports) < count:
        raise UsageError(
            f"--processes {count} with http_port {settings.http_port}: give a range of this many ports, or 0 for any free ones"
        )
    if settings.also_known_as:
        raise UsageError("--also-known-as names one member: give it to a member that is started alone")
    own = ("cluster", "port", "seeds", "memory_limit")
    options = [
        "--log-level",
        line.log_level.value,
        f"--log-format={line.log_format.value}",
        f"--memory-limit={shared_limit(settings.memory_limit, count)}",
        f"--cluster={settings.cluster}",
    ]
    if line.config is not None:
        options += ["--config", str(line.config)]
    options += [f"--set={each}" for each in line.assignments or [] if each.partition("=")[0] not in own]
    for name, value in flags.items():
        if name not in own:
            options.append(f"--set={name}={','.join(value) if isinstance(value, list) else value}")
    seeds = [str(seed) for seed in settings.seeds]
    group = MemberGroup(count, ports[0], seeds, options, tells=line.json_ready, stop_with_stdin=line.stop_with_stdin)
    return group.run()
