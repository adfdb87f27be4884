"""`phalanx member` as typer knows it: for help, completion, and lines that are wrong or out of the ordinary."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from phalanx.cli.member import run_member
from phalanx.cli.member_line import LineField, MemberLine, line_fields


def member(**values: Any) -> None:
    """Run a member of a cluster until SIGTERM, SIGHUP (a terminal that is closed) or SIGINT.

    After the first signal it hands over its data and leaves; with a folder (`data_dir`) it keeps its data there, to be started again. After
    a second signal (except SIGHUP) it ends at once.
    """
    raise typer.Exit(run_member(line_of(values)))


def line_of(values: dict[str, Any]) -> MemberLine:
    """Return what typer has read. It gives an empty sequence where an option that can be repeated was not given."""
    return MemberLine(**{name: value for name, value in values.items() if value not in ([], ())})


def _parameter(field: LineField) -> inspect.Parameter:
    """Return an option as typer wants it declared."""
    declared = field.option
    option = typer.Option(
        *([declared.flag] if declared.flag else []),
        metavar=declared.metavar,
        help=declared.help,
        show_default=declared.shown_default or True,
        min=declared.minimum,
    )
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=Annotated[field.kind, option]
    )


vars(member)["__signature__"] = inspect.Signature([_parameter(field) for field in line_fields()])
