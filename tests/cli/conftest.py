"""Commands called in this process, as typer's own runner does it."""

import pytest
import typer.testing

from phalanx.cli.main import app
from support.commands import Command


@pytest.fixture(scope="session")
def phalanx_command() -> Command:
    """Runs a command; the result has `exit_code`, `stdout` and `stderr`."""
    runner = typer.testing.CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"})
    return lambda *arguments: runner.invoke(app, [str(argument) for argument in arguments])
