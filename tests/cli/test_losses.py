"""What was lost, as operators are told: the words, and the commands against real members that are killed and hang."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from phalanx.common.ids import MemberId
from phalanx.common.losses import AbsentMember, DepartedHolder, Loss, LossKind, bits_of
from phalanx.reports.losses import away_in_words, in_words, ranges
from support.commands import Command, JsonObject
from support.processes import Cluster, wait_for

HASTY = """
heartbeat_interval_ms = 250
heartbeat_timeout_ms = 2500
"""
A, B = MemberId("127.0.0.1:5701/aaaaaa"), MemberId("127.0.0.1:5702/bbbbbb")


def test_partitions_are_told_as_ranges() -> None:
    assert ranges([]) == ""
    assert ranges([3]) == "3"
    assert ranges([3, 4, 5, 9, 12, 13]) == "3-5, 9, 12-13"
    assert ranges([0, 2, 4, 6, 7], most=2) == "0, 2 and 3 more"


@pytest.mark.parametrize(
    ("kind", "more", "said"),
    [
        (LossKind.EMPTY, {}, "2 partitions of 8 began empty (0-1), because only these members held them, and they are gone: "
         "127.0.0.1:5702 (it hung). It is not known whether these partitions had data."),
        (LossKind.EMPTY, {"gone_count": 3}, "127.0.0.1:5702 (it hung) and 2 more"),
        (LossKind.EMPTY, {"gone": (DepartedHolder(B),)}, "127.0.0.1:5702 (not known how)"),
        (LossKind.EMPTY, {"returned": bits_of([1])}, "1 of them were given back by members that came back"),
        (LossKind.EMPTY, {"returned": bits_of([0, 1])}, "All of them were given back by members that came back, as these had them"),
        (LossKind.BEHIND, {}, "continue with replicas that perhaps lack acknowledged writes (0-1)"),
        (LossKind.KEPT, {"entries": 13_269}, "127.0.0.1:5701 left with 13,269 entries in 2 partitions that it kept"),
    ],
)  # fmt: skip
def test_a_loss_is_told_by_what_is_known_of_it(kind: LossKind, more: dict[str, Any], said: str) -> None:
    fields: dict[str, Any] = {"gone": (DepartedHolder(B, "it hung"),), "gone_count": 1} | more
    told = in_words(Loss(7, A, 3, 1_000_000, kind, 8, bits_of([0, 1]), **fields), 1_040_000)
    assert told.startswith("Loss 7-aaaaaa, 40.0 s ago (")
    assert said in told
    assert told.endswith("Decided by 127.0.0.1:5701 in member list 3.")


def test_who_may_live_on_is_told_with_the_time_and_the_reason() -> None:
    told = away_in_words(AbsentMember(B, 1_000_000, "no heartbeat for 10003 ms"), 1_040_000)
    assert told == (
        "127.0.0.1:5702 was removed 40.0 s ago (no heartbeat for 10003 ms), and perhaps still runs, with data that no "
        "other member has: it has not come back yet."
    )


def test_a_loss_is_told_by_all_commands_from_every_member_until_it_is_acknowledged(
    phalanx_command: Command, cluster: Cluster
) -> None:
    """Without backups, three of four are killed one after another, the master as the second."""
    first, second, third, fourth = cluster.start(4, options=("--backup-count", "0"))
    with cluster.client() as grid:
        grid.map("m").put_all((number, number) for number in range(100))

    def asked(command: str, at: str, *more: str) -> JsonObject:
        result = phalanx_command(command, *more, "--at", at, "--cluster", cluster.name, "--json")
        assert result.exit_code in (0, 1), result.stderr
        found: JsonObject = json.loads(result.stdout)
        return found

    def told(at: str, gone: str) -> list[list[JsonObject]]:
        """Of the losses, what each command says."""
        commands = (("partitions",), ("safe",), ("members",), ("why", gone))
        return [asked(name, at, *more)["unacknowledged_losses"] for name, *more in commands]

    held = [p for p, owner in enumerate(cluster.table_of(first).table.owners()) if owner == fourth.member]
    assert told(second.address, fourth.address) == [[]] * 4
    cluster.kill(fourth)
    cluster.wait_views()
    wait_for(lambda: all(told(member.address, fourth.address)[0] for member in cluster.members), "the loss is told")
    for member in cluster.members:
        for [loss] in told(member.address, fourth.address):
            assert loss["partitions"] == held
            assert [each["member"] for each in loss["gone"]] == [fourth.member]
            assert loss["by"] == first.member
    commands = (("partitions",), ("safe",), ("members",), ("why", fourth.address), ("why", str(held[0])))
    for command in commands:
        shown = phalanx_command(*command, "--at", second.address, "--cluster", cluster.name).stdout
        assert f"{len(held)} partitions of 271 began empty" in shown, command
        assert f"--acknowledge-loss {loss['id']}" in shown, command
    cluster.kill(first)
    cluster.wait_views()
    wait_for(lambda: len(told(third.address, first.address)[0]) == 2, "a second loss is told, by the next master")
    [of_fourth] = told(third.address, fourth.address)[3]
    done = phalanx_command(
        "partitions", "--acknowledge-loss", of_fourth["id"], "--at", third.address, "--cluster", cluster.name
    )
    assert done.exit_code == 0, done.stderr
    for member in (second, third):
        [left] = asked("partitions", member.address)["unacknowledged_losses"]
        assert [each["member"] for each in left["gone"]] == [first.member]
    unknown = phalanx_command(
        "partitions", "--acknowledge-loss", "1-x", "--at", third.address, "--cluster", cluster.name
    )
    assert unknown.exit_code == 2
    assert f"told are: {left['id']}" in unknown.stderr
    for _ in range(2):
        done = phalanx_command(
            "partitions", "--acknowledge-loss", "all", "--at", third.address, "--cluster", cluster.name
        )
        assert done.exit_code == 0, done.stderr
    assert all(told(member.address, first.address) == [[]] * 4 for member in cluster.members)
    cluster.kill(second)
    cluster.wait_views()
    wait_for(lambda: told(third.address, second.address)[0], "what is lost later is told")


def recorded(cluster: Cluster, event: str) -> list[JsonObject]:
    """Return the events of a kind that members have recorded so far."""
    lines = [line for file in cluster.event_log.glob("*.jsonl") for line in file.read_text().split("\n")[:-1]]
    return [found for line in lines if (found := json.loads(line))["event"] == event]


@pytest.mark.long
def test_nobody_may_be_killed_while_one_that_hung_keeps_what_only_it_has(
    phalanx_command: Command, cluster: Cluster, tmp_path: Path
) -> None:
    """The last two of four hang, and are removed; one of them dies. The other comes back with what both had, and hands it in
    when it has waited for the dead one in vain. (What is said until then: `test_safe.py`.)"""
    config = tmp_path / "hasty.toml"
    config.write_text(HASTY)
    first, _, dies, hangs = cluster.start(4, options=("--config", str(config)))
    with cluster.client() as grid:
        grid.map("m").put_all((number, number) for number in range(5_000))
    cluster.wait_redundant()

    def asked(command: str, *more: str) -> JsonObject:
        result = phalanx_command(command, *more, "--at", first.address, "--cluster", cluster.name, "--json")
        assert result.exit_code in (0, 1), result.stderr
        found: JsonObject = json.loads(result.stdout)
        return found

    def away(command: str) -> set[str]:
        return {each["address"] for each in asked(command)["away"]}

    cluster.pause(dies)
    cluster.pause(hangs)
    both = {dies.address, hangs.address}

    def is_told(command: str) -> bool:
        return away(command) == both

    for command in ("safe", "partitions", "members"):
        wait_for(partial(is_told, command), f"{command} tells that both may live on")
    wait_for(lambda: asked("partitions")["whole"], "the others are whole")
    assert asked("safe")["may_be_killed"], "it is not less safe for that"
    losses = asked("safe")["unacknowledged_losses"]
    assert {each["member"] for loss in losses for each in loss["gone"]} == {dies.member, hangs.member}
    cluster.kill(dies)
    wait_for(lambda: away("members") == {hangs.address}, "nobody listens where the other was")
    cluster.resume(hangs)
    [merged] = wait_for(lambda: recorded(cluster, "MergeEnded"), "it has handed in what it kept")
    assert merged["former"] == hangs.member
    assert merged["taken"], "only it had that"
    wait_for(lambda: asked("safe")["may_be_killed"] and asked("partitions")["whole"], "the others have their copies")
    assert away("members") == set()
    for loss in asked("safe")["unacknowledged_losses"]:
        assert loss["returned"] == loss["partitions"]
    with cluster.client() as grid:
        assert sorted(grid.map("m")) == list(range(5_000))
