"""`phalanx member` as a process: how it starts, what it tells, how it ends."""

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.common.errors import UnavailableError
from phalanx.runtime.process.processes import start_member_process
from support.processes import Cluster, wait_for

UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def run_member(*arguments: object) -> subprocess.CompletedProcess[str]:
    """A member that is expected to end by itself."""
    command = [sys.executable, "-m", "phalanx", "member", "--log-level", "error", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL)


def lists_in(log: str) -> list[str]:
    """The member lists that were logged, each in the line of its record."""
    return re.findall(r"INFO    (Members .*)$", log, re.MULTILINE)


@pytest.mark.rows("CS-75", "CS-76")
def test_member_lists_are_logged_with_size_and_version(cluster: Cluster) -> None:
    cluster.start(3)
    for member in cluster.members:
        last = lists_in(member.log.read_text())[-1]
        head, foot = "Members {size:3, ver:3} [", "]"
        assert (last[: len(head)], last[-1]) == (head, foot)
        view = cluster.view_of(member)
        for line, listed in zip(last[len(head) : -1].split(", "), view.members, strict=True):
            port, incarnation = listed.rpartition(":")[2].split("/")
            this = " this" if listed == member.member else ""
            assert line == f"Member [127.0.0.1]:{port} - {incarnation}{this}"
            assert re.fullmatch(UUID, incarnation)


@pytest.mark.rows("CS-74", "CS-76")
def test_member_lists_are_logged_without_them_when_told_so(cluster: Cluster, tmp_path: Path) -> None:
    config = tmp_path / "legacy.toml"
    config.write_text("legacy_member_list_format = true\n")
    cluster.start(2, options=("--config", str(config)))
    first = cluster.members[0]

    def two_lists() -> list[str] | None:
        found = lists_in(first.log.read_text())
        return found if len(found) > 1 else None

    lists = wait_for(two_lists, "two lists logged")
    assert re.fullmatch(
        rf"Members \[2\] \{{Member \[127\.0\.0\.1\]:\d+ - {UUID} this, Member \[127\.0\.0\.1\]:\d+ - {UUID}\}}",
        lists[-1],
    )


def test_it_tells_where_it_listens_on_one_line_of_json(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "phalanx", "member", "--port", "0", "--json", "--event-log", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
        rest, log = process.communicate(timeout=20)
    told = json.loads(line)
    assert rest == ""
    assert process.returncode == 0, log
    assert told["ready"] is True
    assert told["pid"] == process.pid
    assert told["view_version"] == 1
    assert told["member"].startswith(told["address"] + "/")
    events = [json.loads(text) for path in tmp_path.glob("*.jsonl") for text in path.read_text().splitlines()]
    assert {event["member"] for event in events} == {told["member"]}
    assert {"ViewInstalled", "Joined", "Left"} <= {event["event"] for event in events}


def test_a_port_that_is_taken_ends_it_with_status_1(cluster: Cluster) -> None:
    port = cluster.start(1)[0].address.rpartition(":")[2]
    result = run_member("--port", port)
    assert result.returncode == 1
    assert result.stdout == ""
    assert re.fullmatch(rf"phalanx: cannot listen on 127\.0\.0\.1:{port}: .*\n", result.stderr)


def test_seeds_where_nobody_listens_end_it_with_status_1(tmp_path: Path) -> None:
    config = tmp_path / "hasty.toml"
    config.write_text("join_attempts = 1000\njoin_timeout_ms = 200\njoin_retry_pause_ms = 50\n")
    arguments = ("--seed", "127.0.0.1:1", "--config", config, "--join-attempts", "2")
    result = run_member("--port", "0", *arguments)
    assert result.returncode == 1
    assert re.fullmatch(r"phalanx: .*127\.0\.0\.1:1: Connection refused.*\n", result.stderr)


@pytest.mark.rows("EL-28")
def test_a_seed_that_is_not_there_yet_is_told_at_once_and_found_when_it_starts(
    cluster: Cluster, tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    config = tmp_path / "patient.toml"
    config.write_text("join_attempts = 1\njoin_timeout_ms = 60000\n")
    seeds, options = [f"127.0.0.1:{port}"], ["--config", str(config)]
    early = start_member_process(tmp_path / "early.log", seeds=seeds, cluster=cluster.name, options=options)
    cluster.adopt(early)
    told = f"cannot reach the seed 127.0.0.1:{port} (Connection refused): trying until "
    wait_for(lambda: told in early.log.read_text(), "the only attempt, of a minute, tells at once")
    cluster.adopt(start_member_process(tmp_path / "seed.log", port=port, cluster=cluster.name))
    cluster.wait_views()
    assert early.log.read_text().count(told) == 1
    assert "Join attempt" not in early.log.read_text()


def test_a_seed_of_another_cluster_ends_it_with_status_1(cluster: Cluster) -> None:
    seed = cluster.start(1)[0].address
    result = run_member("--port", "0", "--seed", seed, "--cluster", "other")
    assert result.returncode == 1
    assert result.stderr.startswith("phalanx: ")
    assert "belongs to cluster 'test'" in result.stderr
    assert result.stderr.count("\n") == 1


def test_another_partition_count_ends_it_with_status_1(cluster: Cluster) -> None:
    seed = cluster.start(1)[0].address
    result = run_member("--port", "0", "--seed", seed, "--cluster", cluster.name, "--partition-count", "17")
    assert result.returncode == 1
    assert result.stderr.startswith("phalanx: ")
    assert "271" in result.stderr
    assert "17" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_makes_it_hand_over_and_leave(cluster: Cluster, number: signal.Signals) -> None:
    cluster.start(2)
    with cluster.client() as grid:
        entries = {f"key-{n}": n for n in range(2000)}
        grid.map("kept").put_all(entries)
    leaver = cluster.members.pop(0)
    leaver.signal(number)
    assert leaver.wait() == 0
    with cluster.client() as grid:
        assert dict(grid.map("kept").iter_items()) == entries
    told = re.findall(r"has (\d+) of (\d+) replicas left to hand over", leaver.log.read_text())
    assert told[0][0] == told[0][1]
    left = [int(count) for count, _ in told]
    assert left == sorted(set(left), reverse=True)
    assert f"{leaver.address} has left: other members hold its data\n" in leaver.log.read_text()


def test_alone_it_leaves_at_once(tmp_path: Path) -> None:
    with start_member_process(tmp_path / "log") as member:
        member.wait_ready()
        member.signal(signal.SIGTERM)
        assert member.wait() == 0  # it would wait for others for longer


def test_a_second_signal_makes_it_leave_at_once(cluster: Cluster) -> None:
    """What would take the copies hangs, so handing over cannot end."""
    leaver, other = cluster.start(2)
    cluster.pause(other)
    leaver.signal(signal.SIGTERM)
    wait_for(lambda: "send the signal again to end at once" in leaver.log.read_text(), "it has begun to leave")
    leaver.signal(signal.SIGTERM)
    assert leaver.wait() == 0
    assert "has left" not in leaver.log.read_text()


def test_a_terminal_that_is_closed_says_so_more_than_once_and_means_the_same(cluster: Cluster) -> None:
    """SIGHUP comes from the system, and from the shell."""
    leaver, other = cluster.start(2)
    with cluster.client() as grid:
        grid.map("m").put("k", "v")
    cluster.pause(other)
    leaver.signal(signal.SIGHUP)
    wait_for(lambda: "send the signal again to end at once" in leaver.log.read_text(), "it has begun to leave")
    leaver.signal(signal.SIGHUP)
    wait_for(lambda: "replicas left to hand over" in leaver.log.read_text(), "it goes on")
    cluster.resume(other)
    assert leaver.wait() == 0
    assert f"{leaver.address} has left: " in leaver.log.read_text()


def test_one_that_waits_for_its_master_says_so(cluster: Cluster) -> None:
    """It holds nothing, but nobody else may let it go."""
    master, leaver = cluster.start(2)
    cluster.pause(master)
    leaver.signal(signal.SIGTERM)
    told = f"{leaver.address} has nothing left to hand over; waits for the master, {master.address}"
    wait_for(lambda: told in leaver.log.read_text(), "it tells for whom it waits")
    cluster.resume(master)
    assert leaver.wait() == 0


@pytest.mark.parametrize("count", [1, 3])
def test_a_stop_of_all_members_is_no_alarm(cluster: Cluster, count: int) -> None:
    members = cluster.start(count)
    with cluster.client() as grid:
        grid.map("m").put_all(dict.fromkeys(range(100), "v"))
    cluster.wait_redundant(min(count - 1, 1))
    for member in members:
        member.signal(signal.SIGTERM)
    assert [member.wait() for member in members] == [0] * count
    logs = [member.log.read_text() for member in members]
    assert sum("lets the last members that hold data leave" in log for log in logs) == 1
    assert "the data ends with them" in "".join(logs)
    alarms = [line for log in logs for line in log.splitlines() if " WARNING " in line or " ERROR " in line]
    assert not [line for line in alarms if " was busy for " not in line]  # this machine can be slow


def test_one_whose_taker_crashes_meanwhile_stays_until_that_one_is_back(cluster: Cluster) -> None:
    leaver, taker = cluster.start(2)
    entries = {f"key-{n}": n for n in range(2000)}
    with cluster.client() as grid:
        grid.map("kept").put_all(entries)
    cluster.pause(taker)  # so it is in the middle of it, whatever the speed of this machine
    leaver.signal(signal.SIGTERM)
    wait_for(lambda: "replicas left to hand over" in leaver.log.read_text(), "it has begun to hand over")
    port = int(taker.address.rpartition(":")[2])
    cluster.kill(taker)
    wait_for(lambda: "stay for now, because no member can take over" in leaver.log.read_text(), "it says why it stays")
    with cluster.client() as grid:
        assert grid.map("kept").get("key-7") == 7
    log = cluster.folder / "again.log"
    cluster.adopt(start_member_process(log, port=port, seeds=[leaver.address], cluster=cluster.name))
    assert leaver.wait() == 0
    cluster.members.remove(leaver)
    with cluster.client() as grid:
        assert dict(grid.map("kept").iter_items()) == entries


def test_one_that_nobody_takes_over_from_ends_with_status_75(cluster: Cluster) -> None:
    """After its time to leave, which is 60 s for a member that is started as usual."""
    in_a_second = "from phalanx.cli import main, member_process; member_process.LEAVE_WITHIN_S = 1.0; main.main()"
    leaver, taker = cluster.start(2, program=(sys.executable, "-c", in_a_second))
    with cluster.client() as grid:
        grid.map("m").put("k", "v")
    cluster.pause(taker)
    leaver.signal(signal.SIGTERM)
    assert leaver.wait() == 75
    assert "could not hand over everything within 1 s" in leaver.log.read_text()


def test_a_signal_before_it_has_joined_ends_it(tmp_path: Path) -> None:
    member = start_member_process(tmp_path / "log", seeds=["127.0.0.1:1"])
    with member:
        wait_for(lambda: member.log.exists() and "Join attempt" in member.log.read_text(), "it tries to join")
        member.signal(signal.SIGTERM)
        assert member.wait() == 0
        assert "stopped before it had joined" in member.log.read_text()


def test_it_ends_with_the_program_that_started_it(tmp_path: Path) -> None:
    """However that program dies: here by SIGKILL, with a member in the middle of its work."""
    program = (
        "import sys, time; from pathlib import Path; from phalanx.runtime.process.processes import start_member_process\n"
        "first = start_member_process(Path(sys.argv[1]) / 'a'); first.wait_ready()\n"
        "second = start_member_process(Path(sys.argv[1]) / 'b', seeds=[first.address]); second.wait_ready()\n"
        "print(first.pid, second.pid, flush=True); time.sleep(100)\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    with starter:
        assert starter.stdout is not None
        pids = [int(pid) for pid in starter.stdout.readline().split()]
        starter.kill()
    wait_for(lambda: not any(is_alive(pid) for pid in pids), "both members have ended")


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_member_that_does_not_start_is_told_to_its_starter(tmp_path: Path) -> None:
    with start_member_process(tmp_path / "log", options=["--backup-count=9"]) as member:
        with pytest.raises(UnavailableError, match="did not start: phalanx: backup_count: 9 is not between 0 and 6"):
            member.wait_ready()
        assert not member.is_running
