"""The types of fixtures that call the command: what a test asks, and what it gets."""

from collections.abc import Callable
from typing import Any

import typer.testing

Command = Callable[..., typer.testing.Result]
"""Runs a command; the result has `exit_code`, `stdout` and `stderr`."""
Ask = Callable[..., Any]
"""Runs a command that must end as told; what it printed, or the value that its JSON says."""
JsonObject = dict[str, Any]
"""What a command prints as JSON."""
