"""Pages of the site's reference that are generated from the code, as Markdown; `PAGES` names them all."""

import ast
import inspect
import itertools
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import python_reference
from typer.main import get_command

import phalanx.cli.failures
from phalanx.cli.late_commands import LateCommandGroup
from phalanx.cli.main import app
from phalanx.common import errors
from phalanx.wire.events import EVENT_KINDS
from phalanx_spark.connector.options import OPTIONS


def command_page() -> str:
    """Every command with its arguments and options, as the command line itself has them."""
    statuses = inspect.getdoc(phalanx.cli.failures) or ""
    parts = ["# Command line", "", "## How commands end", "", statuses]
    group = get_command(app)
    if not isinstance(group, LateCommandGroup):
        raise TypeError(f"the command line is a {type(group).__name__}")
    group.load_all()
    for path, command in _commands("phalanx", group):
        parts += ["", f"## {path}", "", _text(command.help or "")]
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
        if arguments:
            parts += ["", "| argument | meaning |", "|---|---|"]
            parts += [f"| `{p.name}` | {_cell(p.help)} |" for p in arguments]
        if options:
            parts += ["", "| option | default | meaning |", "|---|---|---|"]
            parts += [f"| {_names(p)} | {_default(p)} | {_cell(p.help)} |" for p in options]
    return "\n".join(parts) + "\n"


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield from _commands(f"{path} {name}", child)


def _names(option: Any) -> str:
    return ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))


def _default(option: Any) -> str:
    value = getattr(option.default, "value", option.default)
    if option.required:
        return "required"
    return "" if value in (None, False, "", ()) or callable(value) else f"`{value}`"


def options_page() -> str:
    """The options of the format `phalanx`, as the format itself checks them."""
    parts = ["# Spark options", "", 'Options of `format("phalanx")`; a wrong one is an error that lists them.', ""]
    parts += ["| option | default | meaning, and what it is an option of |", "|---|---|---|"]
    for option in OPTIONS:
        if not option.is_ours:
            default = "required" if option.default is None else f"`{option.default}`" if option.default else "none"
            parts.append(
                f"| `{option.name}` | {default} | {_cell(option.meaning)} *({', '.join(option.applies_to)})* |"
            )
    return "\n".join(parts) + "\n"


def errors_page() -> str:
    """The classes of errors with their bases, and the codes by which members refuse calls."""
    parts = ["# Errors", "", _text(inspect.getdoc(errors) or ""), "", "## Classes", ""]
    parts += ["| error | is a | meaning |", "|---|---|---|"]
    for kind in vars(errors).values():
        if inspect.isclass(kind) and issubclass(kind, errors.PhalanxError):
            bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
            parts.append(f"| `{kind.__name__}` | {bases} | {_cell(inspect.getdoc(kind))} |")
    parts += ["", "## Codes between members and callers", "", "| code | name | meaning |", "|---|---|---|"]
    told = _field_docs(errors.ErrorCode)
    parts += [f"| {code.value} | `{code.name}` | {_cell(told.get(code.name))} |" for code in errors.ErrorCode]
    return "\n".join(parts) + "\n"


def events_page() -> str:
    """Every event that a member records, with its fields."""
    parts = ["# Events", "", "What members write to the folder of `--event-log`, one JSON object a line."]
    parts += [
        "",
        "Each line has `at` (ms of the member's clock), `cluster`, `member`, `address`, `event` and the fields of",
    ]
    parts += ["the event. Fields are only ever added. A decision carries its inputs and the rule."]
    for module, kinds in itertools.groupby(EVENT_KINDS.values(), inspect.getmodule):
        about = re.sub(r"Events about (.*?)[:.].*", r"\1", inspect.getdoc(module) or "", flags=re.DOTALL)
        parts += ["", f"## {about[0].upper()}{about[1:]}"]
        for kind in kinds:
            own = inspect.cleandoc(vars(kind).get("__doc__") or "")  # a base class says nothing of this event
            parts += ["", f"### {kind.__name__}", "", _text(own)]
            told, fields = _field_docs(kind), msgspec.structs.fields(kind)
            types = inspect.get_annotations(kind)
            if fields and not told:
                parts += ["", "| field | type |", "|---|---|"]
                parts += [f"| `{f.name}` | `{_type(types, f)}` |" for f in fields]
            elif fields:
                parts += ["", "| field | type | meaning |", "|---|---|---|"]
                parts += [f"| `{f.name}` | `{_type(types, f)}` | {_cell(told.get(f.name))} |" for f in fields]
    return "\n".join(parts) + "\n"


def _type(annotations: dict[str, Any], field: msgspec.structs.FieldInfo) -> str:
    shown = annotations.get(field.name, field.type)
    return (shown if isinstance(shown, str) else getattr(shown, "__name__", str(shown))).replace("|", "\\|")


def _field_docs(kind: type) -> dict[str, str]:
    """The docstring below each field or member of a class."""
    module = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    body = [line for each in module.body if isinstance(each, ast.ClassDef) for line in each.body]
    found = {}
    for field, below in itertools.pairwise(body):
        name = field.target if isinstance(field, ast.AnnAssign) else getattr(field, "targets", [None])[0]
        if isinstance(name, ast.Name) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[name.id] = str(below.value.value)
    return found


def _cell(text: str | None) -> str:
    """Text as the cell of a table: in one line, with nothing that would end the cell or begin HTML."""
    return _text(" ".join((text or "").split())).replace("|", "\\|")


def _text(text: str) -> str:
    """Text from the code as Markdown: without HTML, and without what marks paragraphs for a terminal."""
    return text.replace("\b", "").replace("<", "&lt;")


PAGES: dict[str, Callable[[], str]] = {
    **python_reference.PYTHON_PAGES,
    "reference/command-line.md": command_page,
    "reference/spark-options.md": options_page,
    "reference/errors.md": errors_page,
    "reference/events.md": events_page,
}
