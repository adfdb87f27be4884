"""A plain command line of `phalanx member` is read without typer, and means what it means to typer."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

from phalanx.cli.late_commands import LateCommandGroup
from phalanx.cli.log_lines import LogFormat
from phalanx.cli.main import app
from phalanx.cli.member_command import line_of
from phalanx.cli.member_line import LineField, LogLevel, MemberLine, line_fields, read_plain
from phalanx.runtime.process.processes import start_member_process

FLAGS = [field.flag for field in line_fields()]
VALUES = [
    *("", "0", "1", "7", "007", "-1", "+1", "1_000", " 1", "1.5", "1e3", "nan", ".5", "5.", "99999999999", "٣"),
    *("a", "a=b", "a b", "-", "--", "--json", "info", "INFO", "json", "text", "debug", ".", "a/../b", "127.0.0.1:5701"),
]


def by_typer(arguments: list[str]) -> MemberLine | None:
    """What typer reads; None: it refuses the line, or shows help."""
    group = get_command(app)
    assert isinstance(group, LateCommandGroup)
    name, command, _ = group.resolve_command(None, ["member"])
    try:
        return line_of(command.make_context(name, list(arguments)).params)
    except Exception:
        return None


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """Lines of options and values that fit, mostly, and of other words."""
    found: list[str] = []
    for field in draw(st.lists(st.sampled_from(line_fields()), max_size=5)):
        text = draw(st.sampled_from(fitting(field)) | st.sampled_from(VALUES))
        if field.kind in (bool, bool | None):
            found.append(field.flag)
        elif draw(st.booleans()):
            found.append(f"{field.flag}={text}")
        else:
            found += [field.flag, text]
    if draw(st.integers(0, 4)) == 0:
        found.insert(draw(st.integers(0, len(found))), draw(st.sampled_from([*FLAGS, *VALUES, "--help", "--no-lite"])))
    return found


def fitting(field: LineField) -> list[str]:
    options: dict[Any, list[str]] = {
        int: ["1", "3"],
        int | None: ["0", "271"],
        float | None: ["2", "0.5"],
        LogLevel: ["debug", "warning"],
        LogFormat: ["json"],
    }
    return options.get(field.kind, ["one", "127.0.0.1:5701"])


@given(lines())
def test_what_is_read_without_typer_is_what_typer_reads(arguments: list[str]) -> None:
    if (read := read_plain(arguments)) is not None:
        assert by_typer(arguments) == read


def test_the_lines_of_programs_are_read_without_typer() -> None:
    line = read_plain(["--json", "--stop-with-stdin", "--port", "0", "--seed=a:1", "--seed=b:2", "--event-log=/tmp/e"])
    assert line == MemberLine(
        json_ready=True, stop_with_stdin=True, port="0", seed=["a:1", "b:2"], event_log=Path("/tmp/e")
    )
    every = [f"{field.flag}={fitting(field)[0]}" for field in line_fields() if field.kind not in (bool, bool | None)]
    read = read_plain(every)
    assert read is not None
    assert read == by_typer(every)
    assert read_plain([]) == MemberLine() == by_typer([])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"], ["--colour", "red"], ["--port"], ["--port="], ["--port", "--json"], ["--json=yes"], ["extra"], ["--"],
        ["--processes", "0"], ["--backup-count", "many"], ["--log-level", "loud"], ["--no-lite"], ["--lite", "x"],
    ],
)  # fmt: skip
def test_what_typer_must_answer_is_left_to_it(arguments: list[str]) -> None:
    assert read_plain(arguments) is None


def test_a_member_starts_without_typer(tmp_path: Path) -> None:
    program = "import sys; sys.modules.update(dict.fromkeys(['typer', 'rich', 'click', 'pydantic'])); import phalanx.__main__ as m; m.main()"
    with start_member_process(tmp_path / "log", program=[sys.executable, "-c", program]) as process:
        process.wait_ready()
    wrong = subprocess.run(
        [sys.executable, "-c", program, "member", "--secret-file", "nowhere"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "phalanx: secret_file: cannot read nowhere: No such file or directory\n"
    refused = subprocess.run(
        [sys.executable, "-c", program, "member", "--help"], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "pip install 'phalanx[cli]'" in refused.stderr
