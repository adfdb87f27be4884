"""Fixtures that call the command: what a test asks, and what it gets."""

import json
from collections.abc import Callable
from typing import Any

import typer.testing

from .processes import Cluster

Command = Callable[..., typer.testing.Result]
"""Runs a command; the result has `exit_code`, `stdout` and `stderr`."""
Ask = Callable[..., Any]
"""Runs a command that must end as told; what it printed, or the value that its JSON says."""
JsonObject = dict[str, Any]
"""What a command prints as JSON."""


def asker(command: Command, cluster: Cluster) -> Ask:
    """Return what runs a command against a member (`at`). It returns what is printed, with `--json` as an object; where the status is
    to be another one than 0, the one line that says why."""

    def run(*arguments: object, status: int = 0, at: int = 0) -> Any:
        result = command(*arguments, "--at", cluster.members[at].address, "--cluster", cluster.name)
        assert result.exit_code == status, (result.stdout, result.stderr)
        if status:
            assert result.stderr.count("\n") == 1, "one line"
            return result.stderr
        return json.loads(result.stdout) if "--json" in arguments else result.stdout

    return run
