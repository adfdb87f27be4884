"""The scenario language: what it does, what it shows, and what it says of a file that makes no sense."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from phalanx.common.errors import UsageError
from phalanx_proof.cli.simulate import simulate
from phalanx_proof.sim.scenario.errors import ScenarioError
from phalanx_proof.sim.scenario.script import Played, play
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
        ("until sunset", "test.txt:6: expected a condition, one of: answered, "),
        ("expect view A", "test.txt:6: expected hosts, a colon and a view"),
        ("expect view A: A,B", "test.txt:6: expected a view such as v3 by A: [A,B,C]"),
        ("expect event MemberSuspected sus=A", ""),
        ("deliver A > B", "test.txt:6: expected one of the 0 messages held back from A to B"),
        ("start A", "test.txt:6: expected a host where nothing runs, found 'A'"),
        ("heal all", "test.txt:6: expected one of the hosts A B C, found 'all'"),
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


# --- data ----------------------------------------------------------------------------------------------------------------

DATA = ("set partition_count 1", "put A x=1 k1..3=v", "lock A x by one", "lock B y by two permits 2")
"""What follows `THREE`: entries, a lock and a permit, in one partition of A, with a backup at B."""


def with_data(*commands: str) -> Played:
    """Play commands after `DATA`. Settings are of members that start later, so this has a cluster of its own."""
    lines = ["# Data", DATA[0], "cluster A B C", *DATA[1:], *commands]
    return play("\n".join(lines) + "\n", "data.txt")


def data_shown(*commands: str) -> list[str]:
    """What the last command shows."""
    lines = with_data(*commands).text.rstrip("\n").split("\n")
    last = max(number for number, line in enumerate(lines) if not line.startswith("    "))
    return [line.removeprefix("    ") for line in lines[last + 1 :]]


def test_replicas_are_shown_by_partition_with_all_that_they_know() -> None:
    assert data_shown("remove A k2", "put A k9=v for 30s", "put A other=1 in far", "replicas") == [
        "partition 0 v1 [A,B]",
        "  A B (write 9): k1=v k2 removed k3=v k9=v for 30s x=1, far: other=1, x locked by one (t1), y locked by two (t2) of 2",
    ]
    assert data_shown("drop ReplicatePut A > B", "put A x=2", "replicas")[1:] == [
        "  A (write 7): k1..3=v x=2, x locked by one (t1), y locked by two (t2) of 2",
        "  B (write 6): k1..3=v x=1, x locked by one (t1), y locked by two (t2) of 2",
    ]
    assert data_shown("split A | B C", "replicas")[0] == "partition 0 v2 [A] at A"


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        ("get C x k1..3 none", ["k1..3=v none=none x=1"]),
        ("put A x=2", []),
        ("put A x=2 k1..3=w together", []),
        ("put A x=2 token t1", []),
        ("remove A x token t1", []),
        ("clear A", []),
        ("holders C x", ["one (t1)"]),
        ("holders C z", ["nobody"]),
        ("lock B x by two", ["not granted"]),
        ("lock B x by two wait 5s", ["waits"]),
        ("lock C y by three permits 2", ["granted t3"]),
        ("unlock B x by two", ["x: it is not held by that one"]),
        ("unlock B y by two permit", []),
        ("renew B x by one", []),
        ("map B max_entries=2 eviction=lru backups=1+1", []),
        ("map B eviction=best", ["A: refused: eviction: 'best' is not one of oldest, lru, lfu, soonest-to-expire"]),
        ("partitions C 4", []),
        ("lite C", []),
        ("answers", ["nothing"]),
        ("journal", ["nothing"]),
    ],
)
def test_a_command_about_data_shows_what_is_not_the_usual_answer(command: str, lines: list[str]) -> None:
    assert data_shown(command) == lines


def test_an_answer_that_comes_later_is_shown_on_demand_and_once() -> None:
    late = ("drop ReplicateAck ReplicateAcks B > A", "put A k1..2=w", "heal", "until answered")
    assert data_shown(*late, "answers") == ["A put k1..2=w: done"]
    assert data_shown(*late, "answers", "answers") == ["nothing"]
    assert data_shown(*late[:2]) == ["k1..2: no answer yet"]


def test_journals_are_read_on_from_where_they_were() -> None:
    commands = ("map A journal=10 max_entries=4", "put A x=2 z=3")
    assert data_shown(*commands, "journal") == ["A B: updated x=2, added z=3, evicted k1=v"]
    assert data_shown(*commands, "journal", "put A z=4", "journal") == ["A B: updated z=4"]


def test_a_move_is_ordered_and_awaited_and_its_events_are_told() -> None:
    assert data_shown("mark", "move 0: C A", "until row A B C: 0 [C,A]", "until replicated", "events data")[:2] == [
        "A: orders A to make a move of partition 0 from A to C  [DL-58]",
        "A: has copied 4 entries of partition 0 to C  [DL-33]",
    ]


@pytest.mark.parametrize(
    "condition",
    [
        "row A B C: 0 [A,B]", "holds A B: x=1 k1..3=v", "holds C: nothing", "value A C: x=1 y=none", "locked A B: x one",
        "locked A: y nobody", "permitted B: y two", "keeps A B C: nothing", "replicated", "merged", "answered",
    ],
)  # fmt: skip
def test_conditions_about_data_that_hold(condition: str) -> None:
    assert with_data(f"expect {condition}").failures == ()


@pytest.mark.parametrize(
    ("condition", "instead"),
    [
        ("row A: 0 [B,A]", "A: [A,B]"),
        ("holds A: x=1", "A: k1..3=v x=1"),
        ("value A: x=2", "A: x=1"),
        ("locked A: x two", "A: one"),
        ("locked C: x one", "C: no replica"),
        ("permitted A: y one two", "A: two"),
        ("keeps A: 3", "A: nothing"),
    ],
)
def test_conditions_about_data_that_do_not_hold(condition: str, instead: str) -> None:
    (failure,) = with_data(f"expect {condition}").failures
    assert failure.partition("it is: ")[2] == instead


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("put A x", "expected a key and a value, such as x=1 or k1..20=v, found 'x'"),
        ("put A", "expected keys and values, such as x=1"),
        ("put A x=1 for", "expected something behind 'for'"),
        ("put A x=1 for 3s y=2", "expected nothing more, or one of: for, idle, in, token, together"),
        ("put A x=1 token t9", "expected one of the 2 tokens that were shown, such as t1, found 't9'"),
        ("get D x", "expected one of the hosts A B C, found 'D'"),
        ("lock A x", "expected a key and who asks, such as x by one"),
        ("map A max=3", "expected settings such as max_entries=3, one of: backups, eviction"),
        ("partitions A many", "expected a number of partitions, found 'many'"),
        ("move 1: A B", "expected one of the 1 partitions, which are assigned when something is stored"),
        ("expect row A: 1 [A]", "expected one of the 1 partitions, found '1'"),
        ("expect row A", "expected hosts, a colon and a row such as 0 [A,B], found 'A'"),
        ("replicas A", "expected nothing more in this line, found 'A'"),
    ],
)
def test_a_line_about_data_that_makes_no_sense_is_named_with_what_was_expected(command: str, told: str) -> None:
    with pytest.raises(ScenarioError) as error:
        with_data(command)
    assert str(error.value).startswith(f"data.txt:7: {told}")


def test_what_waits_for_its_turn_may_be_of_data() -> None:
    assert data_shown("hold ReplicatePut A > B", "put A x=2", "held") == [
        "A > B 1: ReplicatePut(1, 7, m, [x], [13 bytes])"
    ]


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


PAGE = (DOCS / "scenarios.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["crash", "locks"])
def test_the_examples_of_the_documentation_play_as_they_stand_there(name: str) -> None:
    example = PAGE.partition(f'```text title="{name}.scenario"\n')[2].partition("```")[0]
    found = play(example, "docs/scenarios.md")
    assert (found.difference, found.failures) == ("", ())
