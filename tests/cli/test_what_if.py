"""`phalanx what-if`: cuts as they are written, and what would be decided, drawn up or for real members."""

import json
import random
import time
from typing import Any

import pytest

from phalanx.common.errors import UsageError
from phalanx.reports.cuts import read_cuts
from support.commands import Command, JsonObject
from support.processes import Cluster

SIX = "A1,A2,B1,B2,C1,C2"


def told(phalanx_command: Command, *arguments: str) -> JsonObject:
    result = phalanx_command("what-if", *arguments, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    found: JsonObject = json.loads(result.stdout)
    return found


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("A-B", {"A": "B"}),
        (" A - B ", {"A": "B"}),
        ("A->B", {"A": "B"}),
        ("A>B", {"A": "B"}),
        ("A<-B", {"B": "A"}),
        ("A<->B", {"A": "B"}),
        ("A,B-C,D-1", {"A": ["C", "D-1"], "B": ["C", "D-1"]}),
        ("D-1-A", {"D-1": "A"}),
        ("C-*", {"C": ["A", "B", "D-1"]}),
    ],
)
def test_cuts_as_they_are_written(text: str, cut: dict[str, Any]) -> None:
    names = ["A", "B", "C", "D-1"]
    found = read_cuts([text], names, lambda name: name if name in names else None)
    assert found == {one: set([others] if isinstance(others, str) else others) for one, others in cut.items()}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("A", "expected names on both sides"),
        ("A-", "expected names on both sides"),
        ("A-X", "there is no member 'X'; there are: A, B"),
        ("A,-B", "a name is missing"),
    ],
)
def test_what_is_no_cut_is_said(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match="--cut") as error:
        read_cuts([text], ["A", "B"], lambda name: name if name in "AB" else None)
    assert problem in str(error.value)


def test_a_long_cut_takes_time_in_proportion() -> None:
    """A member reads it in its loop. Each mark was tried with all names before it, which took a minute for this one."""
    before = time.process_time()
    with pytest.raises(UsageError, match="there is no member '-"):
        read_cuts(["A," * 100_000 + "A" + "-" * 2_000], ["A", "B"], lambda name: name if name in ("A", "B") else None)
    assert time.process_time() - before < 5


@pytest.mark.rows("PD-30", "PD-31")
def test_the_examples_of_racks_and_random_pairs(phalanx_command: Command) -> None:
    racks = told(phalanx_command, "--members", SIX, "--cut", "B1,B2-C1,C2")
    assert (racks["kept"], racks["removed"]) == (["A1", "A2", "B1", "B2"], ["C1", "C2"])
    assert [each["kept"] for each in racks["largest"]] == [["A1", "A2", "B1", "B2"], ["A1", "A2", "C1", "C2"]]
    pairs = told(phalanx_command, "--members", SIX, "--cut", "A1-B1", "--cut", "B2-C1", "--master", "A2")
    assert pairs["largest_count"] == 4
    assert pairs["kept"] == ["A1", "A2", "B2", "C2"]
    assert pairs["cut"] == [["A1", "B1"], ["B2", "C1"]]


@pytest.mark.rows("PD-28")
def test_one_way_is_both_ways(phalanx_command: Command) -> None:
    ways = [told(phalanx_command, "--members", "3", "--cut", f"N2{way}N3") for way in ("-", "->", "<-", "<->")]
    assert ways[1:] == ways[:1] * 3
    assert ways[0]["removed"] == ["N3"]


@pytest.mark.rows("PD-29", "PN-09")
def test_lite_members_zones_and_backups_decide(phalanx_command: Command) -> None:
    lite = told(phalanx_command, "--members", "6", "--cut", "N2-N3,N4,N5", "--lite", "N3,N4,N5")
    assert (lite["removed"], lite["decided_by"]) == (["N3", "N4", "N5"], "size")
    zones = told(phalanx_command, "--members", "4", "--cut", "N2-N3", "--zone", "a=N1,N2", "--zone", "b=N3")
    assert (zones["removed"], zones["decided_by"], zones["narrowed"]["zones"]) == (["N2"], "zones", 1)
    lost = told(phalanx_command, "--members", "4", "--cut", "N2-N3", "--backups", "0")
    assert lost["lost_partitions"] in (67, 68)
    assert {each["lost_partitions"] for each in lost["largest"]} <= {67, 68}
    kept_by_backups = told(phalanx_command, "--members", "4", "--cut", "N2-N3", "--backups", "1")
    assert kept_by_backups["lost_partitions"] == 0


def test_people_see_who_is_kept_and_the_sets_it_was_chosen_from(phalanx_command: Command) -> None:
    shown = phalanx_command(
        "what-if", "--members", SIX, "--cut", "A1-B1", "--cut", "B2-C1", "--master", "A2", "--limit", "3"
    )
    assert shown.exit_code == 0
    assert "Kept:    A1, A2, B2, C2" in shown.stdout
    assert "Removed: B1, C1, until their links are whole" in shown.stdout
    assert "4 sets are as large, and this one keeps the oldest members" in shown.stdout
    assert "The largest sets with A2: 4" in shown.stdout
    assert "Shown: 3. --limit shows more." in shown.stdout
    whole = phalanx_command("what-if", "--members", "5")
    assert "All 5 members stay" in whole.stdout


def test_a_full_cut_is_told_side_by_side(phalanx_command: Command) -> None:
    shown = phalanx_command("what-if", "--members", "2", "--cut", "N1-N2", "--backups", "0")
    assert shown.exit_code == 0
    assert shown.stdout.startswith("FULL CUT: both sides continue, each with its own master: N1 | N2;")
    assert "The side of N2: N2" in shown.stdout
    assert "partitions would begin empty" in shown.stdout
    assert "N1 and N2 are equal" in shown.stdout
    found = told(phalanx_command, "--members", "5", "--cut", "N1-N4,N5", "--cut", "N2-N3", "--lite", "N5")
    assert (found["is_full_cut"], found["kept"], found["removed"]) == (True, ["N1", "N2"], ["N3", "N4", "N5"])
    sides = [(side["master"], side["members"], side["waiting"]) for side in found["sides"]]
    assert sides == [("N1", ["N1", "N2"], ["N3"]), ("N4", ["N4", "N5"], [])]
    mixed = phalanx_command("what-if", "--members", "5", "--cut", "N1-N4,N5", "--cut", "N2-N3", "--lite", "N4,N5")
    assert "Removed: N3, until their links are whole. 2 of 3 members are kept" in mixed.stdout
    assert "No member here holds data: no map can be used." in mixed.stdout
    alone = phalanx_command("what-if", "--members", "9", "--cut", "*-*", "--limit", "2")
    assert "all 9 sides continue" in alone.stdout
    assert "N1 | N2 | N3 | …" in alone.stdout
    assert "Shown: 2 sides. --limit shows more." in alone.stdout


def test_maps_of_a_cluster_that_would_stop_are_named(phalanx_command: Command, cluster: Cluster) -> None:
    """The example of the README."""
    first, second = cluster.start(2)
    at = ("--at", first.address, "--cluster", cluster.name)
    assert phalanx_command("map", "protect", "orders", "--minimum", "2", *at).exit_code == 0
    cut = "-".join(member.address.rpartition(":")[2] for member in (first, second))
    shown = phalanx_command("what-if", *at, "--cut", cut)
    assert "FULL CUT: both sides continue" in shown.stdout
    assert "protected maps stop on both sides: orders;" in shown.stdout
    assert "Map orders refuses calls: at least 2 members for reads and writes, and 1 is here." in shown.stdout


def test_a_search_without_time_says_that_it_was_stopped(phalanx_command: Command) -> None:
    draw = random.Random(1)
    cuts = [f"--cut=N{one}-N{other}" for one, other in (draw.sample(range(2, 301), 2) for _ in range(900))]
    stopped = told(phalanx_command, "--members", "300", *cuts, "--seconds", "0.1")
    assert not stopped["optimal"]
    assert stopped["could_be_larger_by"] > 0
    assert "the search was stopped" in stopped["because"]
    assert stopped["largest"] == [stopped["largest"][0] | {"kept": stopped["kept"]}]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--lite", "A"), "a cluster (--at) knows its own members, zones and replicas"),
        (("--members", "0"), "from 1 to 5000"),
        (("--members", "A,A"), "a name of its own"),
        (("--members", "3", "--cut", "N2-N2"), "both sides are N2"),
        (("--members", "3", "--cut", "N1-N4"), "there is no member 'N4'"),
        (("--members", "3", "--lite", "X"), "--lite X: there is no member 'X'"),
        (("--members", "3", "--zone", "N1"), "expected NAME=A,B"),
        (("--members", "3", "--master", "X"), "there is no member 'X'"),
        (
            ("--at", "127.0.0.1:1", "--members", "3"),
            "give them without --at, for members that need not exist (--members A,B,C)",
        ),
    ],
)
def test_what_is_wrong_with_the_command_line_is_said(
    phalanx_command: Command, arguments: tuple[str, ...], problem: str
) -> None:
    result = phalanx_command("what-if", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert problem in result.stderr


def test_a_cluster_that_does_not_answer_is_a_failure(phalanx_command: Command) -> None:
    result = phalanx_command("what-if", "--at", "127.0.0.1:1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "127.0.0.1:1" in result.stderr


def test_real_members_their_traits_and_their_replicas(phalanx_command: Command, cluster: Cluster) -> None:
    [first] = cluster.start(1, options=("--backup-count", "0", "--zone", "x"))
    [second] = cluster.start(1, options=("--backup-count", "0", "--zone", "y"))
    [third] = cluster.start(1, options=("--backup-count", "0", "--zone", "y"))
    [fourth] = cluster.start(1, options=("--backup-count", "0", "--lite"))
    with cluster.client() as grid:
        grid.map("m").put("k", "v")
    cluster.wait_redundant(0)
    ports = [member.address.rpartition(":")[2] for member in (first, second, third, fourth)]
    at = ("--at", first.address, "--cluster", cluster.name)
    found = told(phalanx_command, *at, "--cut", f"{ports[1]}-{third.address}", "--cut", f"{ports[3]}->{ports[0]}")
    assert found["members"] == [member.address for member in (first, second, third, fourth)]
    assert (found["master"], found["lite"]) == (first.address, [fourth.address])
    assert found["zones"][first.address] == "x"
    assert fourth.address in found["removed"]
    assert found["lost_partitions"] > 50  # without backups
    assert found["largest_count"] == 2
    assert found["table_version"] > 0
