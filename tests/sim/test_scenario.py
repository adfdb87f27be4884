"""The scenario language: what it does, what it shows, and what it says of a file that makes no sense."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from phalanx.cli.simulate import simulate
from phalanx.common.errors import UsageError
from phalanx.sim.scenario.errors import ScenarioError
from phalanx.sim.scenario.script import Played, play
from support.roots import DOCS

app = typer.Typer()
app.command()(simulate)

THREE = "# Three members\n# rows: CS-06\ncluster A B C\nexpect CS-06 master A B C: A\n"


def played(*commands: str) -> Played:
    return play("\n".join([THREE, *commands]) + "\n", "test.txt")


def shown(*commands: str) -> list[str]:
    """What the last command shows."""
    lines = played(*commands).text.rstrip("\n").split("\n")
    last = max(number for number, line in enumerate(lines) if not line.startswith("    "))
    return [line.removeprefix("    ") for line in lines[last + 1 :]]


def test_a_file_that_was_rewritten_is_as_it_should_be_and_plays_the_same_again() -> None:
    first = played("crash A", "until master B C: B", "events", "views")
    assert first.difference
    again = play(first.text, "test.txt")
    assert (again.difference, again.failures, again.text) == ("", (), first.text)
    assert again.digest == first.digest


def test_output_that_is_no_longer_so_is_a_difference() -> None:
    text = played("views").text
    assert play(text, "test.txt").difference == ""
    assert "-    A B C: v9" in play(text.replace("v3", "v9"), "test.txt").difference


def test_what_is_expected_must_hold_whatever_is_shown() -> None:
    found = played("views", "expect view A: v9 [A,B,C]")
    assert found.failures == (
        "test.txt:7: 'expect view A: v9 [A,B,C]': does not hold; it is: A: v3 by A: [A,B,C]",
    )  # fmt: skip


@pytest.mark.parametrize(
    "condition",
    [
        "view A B: [A,B,C]", "view A: v3 [A,B,C]", "view A: v3 by A: [A,B,C]", "version A B C: 3", "version A: > 2",
        "master B C: A", "masters A", "role A: master", "role B C: slave", "suspects A B: nobody", "runs A B C",
        "whole", "no event MemberSuspected", "sent JoinRequest A > B: 0", "log A: Members {size:3, ver:3} [",
        "log legacy A: Members [3] {", "log A:     Member [10.0.0.1]:5701 - 00000001-0000-4000-8000-000000000000 this",
    ],
)  # fmt: skip
def test_conditions_that_hold(condition: str) -> None:
    assert played(f"expect {condition}").failures == ()


@pytest.mark.parametrize(
    ("condition", "instead"),
    [
        ("view A: [A,B]", "A: v3 by A: [A,B,C]"),
        ("view A: v4 [A,B,C]", "A: v3"),
        ("view A: v3 by B: [A,B,C]", "A: v3"),
        ("view A: none", "A: v3"),
        ("version A: > 3", "A: 3"),
        ("master B: B", "B: A"),
        ("masters A B", "A"),
        ("role B: claiming", "B: slave"),
        ("suspects A: B", "A: nobody"),
        ("down A", "A runs"),
        ("runs A2", "A runs"),
        ("whole A B", "A has v3 by A: [A,B,C]"),
        ("event MemberSuspected", "not seen anywhere"),
        ("event A B: MemberSuspected", "not seen at A B"),
        ("sent JoinRequest A > B: > 0", "0"),
        ("log A: Members {size:3, ver:4} [", "ver:3"),
    ],
)
def test_conditions_that_do_not_hold(condition: str, instead: str) -> None:
    (failure,) = played(f"expect {condition}").failures
    assert instead in failure.partition("it is: ")[2]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("jump A", "test.txt:6: expected a command, one of: advance, "),
        ("crash D", "test.txt:6: expected one of the hosts A B C, found 'D' in 'crash D'"),
        ("cut A", "test.txt:6: expected sides, for example A | B C"),
        ("drop MembersUpdate A B", "test.txt:6: expected a way, for example A > B"),
        ("drop Letter A > B", "test.txt:6: expected one of the hosts"),
        ("advance 5", "test.txt:6: expected a duration such as 500ms"),
        ("set heartbeat 5", "test.txt:6: expected a setting of a member"),
        ("set heartbeat_interval_ms soon", "test.txt:6: expected a value for heartbeat_interval_ms"),
        (
            "set heartbeat_interval_ms 0",
            "test.txt:6: expected a value for heartbeat_interval_ms (heartbeat_interval_ms: 0 must be",
        ),
        ("until sunset", "test.txt:6: expected a condition, one of: down, "),
        ("expect view A", "test.txt:6: expected hosts, a colon and a view"),
        ("expect view A: A,B", "test.txt:6: expected a view such as v3 by A: [A,B,C]"),
        ("expect event MemberSuspected sus=A", ""),
        ("deliver A > B", "test.txt:6: expected one of the 0 messages held back from A to B"),
        ("start A", "test.txt:6: expected a host where nothing runs, found 'A'"),
        ("heal all", "test.txt:6: expected nothing more in this line, found 'all'"),
        ("start 3 B", "test.txt:6: expected how many to start, or their names"),
    ],
)
def test_a_line_that_makes_no_sense_is_named_with_what_was_expected(command: str, told: str) -> None:
    if told:
        with pytest.raises(ScenarioError) as error:
            played(command)
        assert str(error.value).startswith(told.replace("A | B C", "A B | C"))
    else:
        with pytest.raises(ScenarioError, match="expected a field of MemberSuspected, one of: suspect, reason, rule"):
            played("crash C", "until suspects B: C", command)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("    output\n# T\ncluster 2\n", "t.txt:1: expected a command: indented lines are what a command showed"),
        ("# T\n  cluster 2\n", "t.txt:2: expected a command, or four spaces"),
        ("cluster 2\n", "t.txt:1: expected a comment with the title"),
        ("# T\nviews\n", "t.txt: expected a command that starts members"),
    ],
)
def test_a_file_that_is_no_scenario(text: str, told: str) -> None:
    with pytest.raises(ScenarioError) as error:
        play(text, "t.txt")
    assert str(error.value).startswith(told)


def test_each_row_has_an_expectation_and_each_expectation_of_a_row_is_listed() -> None:
    assert play("# T\n# rows: CS-06\ncluster 2\n", "t.txt").failures == (
        "t.txt: expected a line 'expect CS-06 …': the file lists this row",
    )
    assert play("# T\ncluster 2\nexpect CS-06 master B: A\n", "t.txt").failures == (
        "t.txt: expected CS-06 in the line '# rows: …': the file has an expectation for it",
    )


def test_held_messages_are_delivered_in_any_order() -> None:
    commands = ("hold MembersUpdate A > B", "start D", "advance 3s", "start E", "advance 3s")
    held = [line.partition("(")[0] for line in shown(*commands, "held")]
    assert held[:2] == ["A > B 1: MembersUpdate", "A > B 2: MembersUpdate"]
    newest = len(held)
    text = played(*commands, f"deliver A > B {newest} 1", "views B").text
    assert "    B: v5 by A: [A,B,C,D,E]" in text.splitlines()
    assert shown(*commands, "release", "held") == ["nothing is held back"]


def test_dropped_messages_vanish_and_are_counted_as_sent() -> None:
    commands = ("drop MembersUpdate A > B next 1", "mark", "start D", "until view C: [A,B,C,D]")
    found = played(*commands, "expect sent MembersUpdate A > B: >= 1", "expect view B: [A,B,C]", "advance 3s",
                   "expect view B: [A,B,C,D]")  # fmt: skip
    assert found.failures == ()


def test_a_one_way_cut_leaves_the_other_way() -> None:
    found = played("cut C > B", "until suspects B: C within 15s", "expect suspects C: nobody", "heal", "until whole")
    assert found.failures == ()


def test_incarnations_are_numbered() -> None:
    assert shown("restart B", "until whole", "views") == ["A B2 C: v4 by A: [A,C,B2]"]


def test_what_is_awaited_in_vain_is_a_failure() -> None:
    (failure,) = played("until master B: C within 2s").failures
    assert "not within 2.0 s: master B: C; it is: B: A" in failure


# --- the command ------------------------------------------------------------------------------------------------------


def call(*arguments: str) -> tuple[int, dict[str, object]]:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    return result.exit_code, json.loads(result.stdout.splitlines()[-1])


def test_the_command_plays_a_file_and_rewrites_it_on_demand(tmp_path: Path) -> None:
    file = tmp_path / "three.txt"
    file.write_text(THREE + "views\n", encoding="utf-8")
    status, summary = call("--scenario", str(file))
    assert (status, summary["differs"], summary["rewritten"]) == (1, True, False)
    status, summary = call("--scenario", str(file), "--rewrite")
    assert (status, summary["differs"], summary["rewritten"]) == (0, False, True)
    assert file.read_text(encoding="utf-8").endswith("views\n    A B C: v3 by A: [A,B,C]\n")
    assert call("--scenario", str(file))[0] == 0


def test_the_command_rewrites_nothing_when_an_expectation_does_not_hold(tmp_path: Path) -> None:
    file = tmp_path / "three.txt"
    text = THREE.replace("A B C: A", "A B C: B") + "views\n"
    file.write_text(text, encoding="utf-8")
    status, summary = call("--scenario", str(file), "--rewrite")
    assert (status, summary["rewritten"]) == (1, False)
    assert file.read_text(encoding="utf-8") == text


def test_a_scenario_and_a_seed_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give either --scenario"):
        call("--scenario", str(tmp_path / "x.txt"), "--seed", "1")
    with pytest.raises(UsageError, match="cannot be read"):
        call("--scenario", str(tmp_path / "x.txt"))


def test_the_example_of_the_documentation_plays_as_it_stands_there() -> None:
    page = (DOCS / "scenarios.md").read_text(encoding="utf-8")
    example = page.partition('```text title="crash.scenario"\n')[2].partition("```")[0]
    found = play(example, "docs/scenarios.md")
    assert (found.difference, found.failures) == ("", ())
