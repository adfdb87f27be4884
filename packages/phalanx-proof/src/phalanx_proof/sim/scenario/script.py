"""A scenario file: commands, each followed by what it showed, indented. Playing it gives the same text with what it shows
now; a reviewer reads the difference.

Comments (`#`) and empty lines stay as they are. The first comments are the title, a picture and `# rows: CS-67 CS-72`:
the rules that the scenario holds. Each of these must stand in an `expect` line, and each there in the list, so
that no rewriting of the shown output can hide a broken rule.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

import msgspec

from phalanx.common.errors import UsageError
from phalanx_proof.sim.scenario.commands import Player, names_to_start
from phalanx_proof.sim.scenario.errors import ScenarioError, wrong
from phalanx_proof.sim.scenario.facts import CITED

INDENT = "    "


class ScriptStep(msgspec.Struct):
    """A line of the file that is not output."""

    number: int
    text: str
    shown: list[str]
    """The output that the file has for it."""

    @property
    def is_command(self) -> bool:
        return bool(self.text) and not self.text.startswith("#")


class Played(msgspec.Struct, frozen=True):
    """What became of a scenario."""

    file: str
    text: str
    """The file as it should be: with what the commands show now."""
    failures: tuple[str, ...]
    """Expectations that do not hold, and what must never happen, each with its line."""
    difference: str
    """From the file's output to what is shown now; empty: none."""
    digest: str


def parse(text: str, file: str) -> list[ScriptStep]:
    """Split a file into its lines and their output. Raises `ScenarioError`."""
    steps: list[ScriptStep] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(INDENT):
            command = next((step for step in reversed(steps) if step.text), None)
            if command is None or not command.is_command or steps[-1] is not command:
                raise ScenarioError(f"{file}:{number}: expected a command: indented lines are what a command showed")
            command.shown.append(line[len(INDENT) :])
        elif line[:1].isspace() and line.strip():
            raise ScenarioError(f"{file}:{number}: expected a command, or four spaces before what a command showed")
        else:
            steps.append(ScriptStep(number, line.rstrip(), []))
    return steps


def title_of(text: str) -> str:
    """Return the first comment line."""
    first = text.partition("\n")[0]
    return first.lstrip("# ").strip() if first.startswith("#") else ""


def rows_of(text: str) -> list[str]:
    """Return the ids of rules that the file says it holds."""
    return [row for line in text.splitlines() if line.startswith("# rows:") for row in CITED.findall(line)]


def play(text: str, file: str) -> Played:
    """Play a scenario. Raises `ScenarioError` at the first line that makes no sense."""
    steps = parse(text, file)
    if not title_of(text):
        raise ScenarioError(f"{file}:1: expected a comment with the title, for example '# A claim of six'")
    player = Player(_hosts(steps, file))
    lines: list[str] = []
    failures: list[str] = []
    for step in steps:
        lines.append(step.text)
        if not step.is_command:
            continue
        try:
            shown = player.run(step.text)
        except UsageError as error:
            raise ScenarioError(f"{file}:{step.number}: {error} in {step.text!r}") from None
        failures += [f"{file}:{step.number}: {step.text!r}: {failure}" for failure in player.failures]
        player.stage.problems.clear()
        player.stage.findings.violations.clear()
        lines += [(INDENT + line).rstrip() for line in shown]
    failures += _rows_not_held(set(rows_of(text)), player.expected_rows, file)
    played = "\n".join(lines) + "\n"
    return Played(file, played, tuple(failures), _difference(text, played, file), player.stage.digest())


def _hosts(steps: list[ScriptStep], file: str) -> list[str]:
    """Return all hosts of a scenario, in the order in which they first start."""
    found: dict[str, None] = {}
    for step in steps:
        word, _, rest = step.text.partition(" ")
        if word in ("start", "cluster"):
            try:
                found |= dict.fromkeys(names_to_start(rest.strip())[0])
            except ScenarioError as error:
                raise ScenarioError(f"{file}:{step.number}: {error} in {step.text!r}") from None
    if not found:
        raise ScenarioError(f"{file}: {wrong('a command that starts members, for example: cluster 3')}")
    return list(found)


def _rows_not_held(listed: set[str], expected: set[str], file: str) -> Iterator[str]:
    for row in sorted(listed - expected):
        yield f"{file}: expected a line 'expect {row} …': the file lists this row"
    for row in sorted(expected - listed):
        yield f"{file}: expected {row} in the line '# rows: …': the file has an expectation for it"


def _difference(old: str, new: str, file: str) -> str:
    return "\n".join(difflib.unified_diff(old.splitlines(), new.splitlines(), file, f"{file} as played", lineterm=""))
