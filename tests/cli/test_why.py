"""`phalanx why`: the conclusion, the decisions behind it, and what is told when there is nothing to tell."""

import json
import re
from pathlib import Path

import pytest

from phalanx.rules import WORDS, cite, words_of
from support.commands import Ask, Command, JsonObject
from support.processes import Cluster, wait_for

A, B, C = "127.0.0.1:1/aaaa-1", "127.0.0.1:2/bbbb-1", "127.0.0.1:3/cccc-1"
B2 = "127.0.0.1:2/dddd-2"
SILENT = "no heartbeat for 10003 ms; limit 10000 ms"


def test_a_rule_is_told_in_words_with_its_id_behind_them() -> None:
    assert cite("CS-35") == "the master removes a member that its failure detector suspects (CS-35)"
    assert cite("CS-33 silence") == f"{WORDS['CS-33']} (CS-33)"
    assert cite("CS-51 CS-52") == f"{WORDS['CS-51']} (CS-51); {WORDS['CS-52']} (CS-52)"
    assert cite("DESIGN 6 graceful shutdown") == f"{WORDS['PX-01']} (PX-01)"
    assert "does not serve before it knows" in words_of("DESIGN 5 C-23")


def test_a_rule_of_another_version_is_told_as_it_came() -> None:
    assert (words_of("XX-99 praise"), cite("XX-99 praise")) == ("praise", "praise (XX-99)")
    assert cite("DESIGN 12 patience") == "patience"
    assert cite("CS-35 XX-99") == f"{WORDS['CS-35']} (CS-35); (XX-99)"


@pytest.fixture
def why(phalanx_command: Command, tmp_path: Path) -> Ask:
    """Writes events, one list per member, and asks about a member; what was found as an object."""

    def run(member: str, **events: list[JsonObject]) -> JsonObject:
        for name, decided in events.items():
            by = {"A": A, "B": B, "C": C, "B2": B2}[name]
            lines = [{"cluster": "phalanx", "member": by, "address": by.partition("/")[0], **each} for each in decided]
            (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        result = phalanx_command("why", member, "--event-log", tmp_path, "--json")
        assert result.exit_code == 0, result.stderr
        found: JsonObject = json.loads(result.stdout)
        return found

    return run


def view(at: int, version: int, maker: str, *members: str) -> JsonObject:
    return {
        "at": at, "event": "ViewInstalled", "view_version": version, "maker": maker, "master": members[0],
        "members": members, "rule": "CS-14",
    }  # fmt: skip


def suspects(at: int, whom: str) -> JsonObject:
    return {"at": at, "event": "MemberSuspected", "suspect": whom, "reason": SILENT, "rule": "CS-33 silence"}


def removes(at: int, whom: str, version: int) -> JsonObject:
    return {
        "at": at, "event": "MemberRemoved", "removed": whom, "view_version": version, "reason": SILENT, "rule": "CS-35",
    }  # fmt: skip


def admits(at: int, whom: str, version: int) -> JsonObject:
    return {
        "at": at, "event": "MemberAdmitted", "joiner": whom, "view_version": version, "replaced": [], "rule": "CS-10",
    }  # fmt: skip


def test_a_removed_member_is_told_with_who_when_why_and_the_rule(why: Ask) -> None:
    found = why(
        "127.0.0.1:2",
        A=[view(1, 1, A, A, B, C), suspects(5, B), removes(6, B, 2), view(6, 2, A, A, C)],
        C=[view(2, 1, A, A, B, C), suspects(4, B), view(7, 2, A, A, C)],
    )
    assert found["status"] == "removed"
    assert found["conclusion"].startswith(
        "127.0.0.1:2 was removed because it was silent for 10.0 s. 127.0.0.1:1, the master, removed it with member list 2, "
    )
    assert found["conclusion"].endswith(f" ({SILENT})")
    assert [(each["by"], each["event"]) for each in found["decisions"]] == [
        (C, "MemberSuspected"),
        (A, "MemberSuspected"),
        (A, "MemberRemoved"),
    ]


def test_one_that_came_back_is_told_with_both_incarnations(why: Ask) -> None:
    found = why("127.0.0.1:2", A=[view(1, 1, A, A, B), removes(2, B, 2), admits(3, B2, 3), view(3, 3, A, A, B2)])
    assert (found["status"], found["incarnations"]) == ("member", [B, B2])
    assert "127.0.0.1:2/dddd-2 is a member now, since member list 3: admitted by 127.0.0.1:1" in found["conclusion"]
    assert (
        "Before: 127.0.0.1:2/bbbb-1 was removed because it was silent for 10.0 s. 127.0.0.1:1, the master, removed it with member list 2"
        in found["conclusion"]
    )
    assert why("dddd")["incarnations"] == [B2]
    assert why(B)["status"] == "removed"


def test_one_that_was_removed_for_its_links_is_told_with_the_reports_and_for_whom_it_waits(why: Ask) -> None:
    reported = {"reporter": B, "cannot_reach": [C], "reaches_again": [], "rule": "PD-13 PD-23"}
    decided = {
        "links": [[B, C]], "reports": [[B, C]], "kept": [A, C], "removed": [B], "narrowed": [], "is_proven": True,
        "could_be_larger_by": 0, "reason": "2 of 3 members are kept", "rule": "PD-22 PD-26",
    }  # fmt: skip
    held = {"joiner": B2, "reach": [C], "reason": "its link to 127.0.0.1:3 was broken", "rule": "PD-24 PD-28"}
    cannot = "it and 127.0.0.1:3 cannot reach each other"
    removed = {"removed": B, "view_version": 2, "reason": cannot, "rule": "PD-24"}
    found = why(
        "127.0.0.1:2",
        A=[
            view(1, 1, A, A, B, C),
            {"at": 2, "event": "LinksReported", **reported},
            {"at": 3, "event": "ResolutionDecided", **decided},
            {"at": 4, "event": "MemberRemoved", **removed},
            view(4, 2, A, A, C),
            {"at": 5, "event": "JoinHeldBack", **held},
        ],
    )
    assert found["status"] == "waiting"
    waits, before = found["conclusion"].split(". Before: ")
    assert "waits to be admitted by 127.0.0.1:1: its link to 127.0.0.1:3 was broken" in waits
    assert cannot in before
    told = [each["event"] for each in found["decisions"]]
    assert told == ["LinksReported", "ResolutionDecided", "MemberRemoved", "JoinHeldBack"]


def test_a_crashed_master_is_told_by_the_next_masters_list(why: Ask) -> None:
    found = why("127.0.0.1:1", B=[view(1, 1, A, A, B, C), suspects(5, A), view(6, 2, B, B, C)])
    assert found["status"] == "removed"
    assert found["conclusion"].startswith(
        "127.0.0.1:1 was removed because it was silent for 10.0 s. 127.0.0.1:2, the master, removed it with member list 2, "
    )
    assert SILENT in found["conclusion"]


def test_a_master_that_left_is_told_by_its_last_list(why: Ask) -> None:
    assert why("127.0.0.1:1", B=[view(1, 1, A, A, B), view(6, 2, A, B)])["status"] == "left"


def test_an_event_of_a_kind_that_is_not_known_is_told_by_its_fields(why: Ask) -> None:
    new = {
        "at": 4,
        "event": "MemberPraised",
        "praised": B,
        "points": 3,
        "reason": "it is quick",
        "rule": "XX-99 praise",
    }
    told = why("127.0.0.1:2", A=[view(1, 1, A, A, B), new])["decisions"][0]
    assert told["said"] == "member praised, praised 127.0.0.1:2, points 3"
    assert (told["reason"], told["meaning"]) == ("it is quick", "praise")


def test_lines_that_are_no_events_are_counted(why: Ask, tmp_path: Path) -> None:
    (tmp_path / "broken.jsonl").write_text('{"at": 1, "eve\n[]\n{"at": ' + "[" * 5_000 + "\n")
    assert why("127.0.0.1:1", A=[view(1, 1, A, A)])["notes"] == ["3 lines are not events and are left out"]


@pytest.mark.parametrize(
    ("arguments", "told", "status"),
    [
        (["x", "--at", "127.0.0.1:1", "--event-log", "."], "give either --at HOST:PORT", 2),
        (["x", "--at", "127.0.0.1:1"], "cannot connect to 127.0.0.1:1", 1),
        (["x", "--event-log", "DIR/none"], "holds no event log", 2),
        (["x", "--event-log", "DIR", "--cluster", "other"], "it has events of: 'phalanx'", 2),
        (["127.0.0.1:9", "--event-log", "DIR"], "nothing is known of '127.0.0.1:9'; known are: 127.0.0.1:1, ", 1),
        (["127.0.0.1:", "--event-log", "DIR"], "nothing is known of", 1),
        (["", "--event-log", "DIR"], "'' fits", 2),
    ],
)
def test_what_cannot_be_told_is_one_line(
    why: Ask, phalanx_command: Command, tmp_path: Path, arguments: tuple[str, ...], told: str, status: int
) -> None:
    why("127.0.0.1:1", A=[view(1, 1, A, A, B)])
    result = phalanx_command("why", *(each.replace("DIR", str(tmp_path)) for each in arguments))
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (status, "", 1)
    assert told in result.stderr


def test_living_members_tell_what_became_of_a_dead_one(phalanx_command: Command, cluster: Cluster) -> None:
    first, second, third = cluster.start(3)
    name, gone = ("--cluster", cluster.name), third.address
    shown = phalanx_command("why", gone, "--at", first.address, *name)
    # The second and the third may have come in with one view.
    assert re.search(rf"is a member now, since member list [23]: admitted by {first.address}", shown.stdout)
    cluster.kill(third)
    wait_for(lambda: len(cluster.wait_views().members) == 2, "it is removed")
    removed_in = cluster.wait_views().version
    shown = phalanx_command("why", gone, "--at", second.address, *name)
    assert shown.stdout.startswith(
        f"{gone} was removed because its process has ended: nobody listens at its address any more. "
    )
    assert f"{first.address}, the master, removed it with member list {removed_in}, " in " ".join(shown.stdout.split())
    assert f"removes {gone} in member list {removed_in}" in shown.stdout
    assert "CS-35" not in shown.stdout
    with_rules = phalanx_command("why", gone, "--at", second.address, *name, "--rules").stdout
    assert "(CS-35)" in " ".join(with_rules.split())
    told = json.loads(phalanx_command("why", gone, "--at", second.address, *name, "--json").stdout)
    assert (told["status"], told["notes"]) == ("removed", [])
    other = phalanx_command("why", gone, "--at", first.address, "--cluster", "other")
    assert other.exit_code == 1
    assert "belongs to cluster 'test'" in other.stderr


def test_people_see_the_conflicts_of_one_merge_in_a_line_and_machines_each(
    phalanx_command: Command, why: Ask, tmp_path: Path
) -> None:
    def conflicts(at: int, of: str, count: int, kept_won: int) -> JsonObject:
        return {
            "at": at, "event": "MergeConflicts", "former": B, "map": of, "policy": "latest-update", "count": count,
            "kept_won": kept_won, "conflicts": [], "rule": "DESIGN 5 conflicts",
        }  # fmt: skip

    decided = [conflicts(1, "m", 4, 1), conflicts(2, "other", 1, 0), conflicts(3, "m", 5, 2)]
    found = why("127.0.0.1:2", A=[view(0, 1, A, A, B), *decided], C=[conflicts(4, "m", 7, 0)])
    assert [each["fields"]["count"] for each in found["decisions"] if each["event"] == "MergeConflicts"] == [4, 1, 5, 7]
    shown = phalanx_command("why", "127.0.0.1:2", "--event-log", tmp_path).stdout
    told = re.findall(
        r"found (\d+) keys of map (\w+) with other values of \S+: latest-update took (\d+)", " ".join(shown.split())
    )
    assert told == [("9", "m", "3"), ("1", "other", "0"), ("7", "m", "0")]


def test_what_begins_and_ends_is_told_in_words(why: Ask) -> None:
    def refuses(at: int, on: bool) -> JsonObject:
        return {
            "at": at, "event": "ProtectionChanged", "map": "m", "refuses": on, "minimum": 3, "majority": False,
            "reads": True, "writes": True, "present": 3 - on, "view_version": 7, "reason": "", "rule": "EL-48", "owner": A,
        }  # fmt: skip

    stable = {
        "at": 5,
        "event": "ViewStable",
        "view_version": 8,
        "number": 8,
        "voters": [A],
        "besides": [],
        "rule": "EL-50",
    }
    woke = {"at": 6, "event": "WokeUp", "away_ms": 15000, "rule": "DESIGN 5 C-23"}
    serves = {"at": 7, "event": "ServesAgain", "after_ms": 18, "refused": 1, "rule": "DESIGN 5 C-23"}
    told = [
        each["said"]
        for each in why("127.0.0.1:1", A=[refuses(1, True), refuses(2, False), stable, woke, serves])["decisions"]
    ]
    assert told == [
        "refuses reads and writes of map m from now on; 2 members that hold data are here in member list 7",
        "no longer refuses map m; 3 members that hold data are here in member list 7",
        "knows that all members have member list 8: majorities are of 127.0.0.1:1",
        "did not run for 15000 ms, and serves no caller until it knows that it is still a member",
        "knows after 18 ms whether it is still a member; 1 requests were refused, and their callers ask again",
    ]
