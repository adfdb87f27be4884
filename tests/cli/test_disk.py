"""`phalanx disk show|check|repair`: what a data folder has is told, whatever state it is in, and nothing of it is changed."""

import hashlib
import json
import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

from phalanx.disk.blocks import BLOCK_BYTES
from phalanx.disk.segment_head import HEAD_BYTES
from phalanx.runtime.disk.store_file import encode_store, new_store
from phalanx.runtime.disk.stored_log import read_stored_log
from support.commands import Command
from support.forks import in_child
from support.processes import Cluster
from support.stored_clusters import StoredCluster, end_of_content, flip, overwrite, segments_of

EACH = 200
KEPT_BYTES = 1024 * 1024
"""So much of each segment is kept: what is behind it is zeros, and copying them takes long."""
NOBODY = 65_534


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a member that was killed, started again, and killed."""
    cluster = Cluster(tmp_path_factory.mktemp("written"))
    stored = StoredCluster(cluster)
    try:
        stored.start()
        with cluster.client() as grid:
            grid.map("orders").update({f"k{number}": number for number in range(EACH)})
            grid.map("orders\x1b[2J")["evil"] = 1
            grid.map("over").put("soon", 1, ttl=0.001)
        stored.kill()
        stored.start()
        stored.kill()
    finally:
        cluster.stop()
    for path in stored.folder().glob("*/*.log"):
        if end_of_content(path) > HEAD_BYTES:
            os.truncate(path, KEPT_BYTES)
        else:
            path.unlink()
    return stored.folder()


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(written, tmp_path / "copy"))


def state_of(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Everything about the files of a folder that a command could change."""
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_mode, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in folder.rglob("*")
        if path.is_file()
    }


def shown(command: Command, *arguments: object) -> Any:
    result = command("disk", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def refused(command: Command, *arguments: object, status: int = 2) -> str:
    """The one line that says why it was not done."""
    result = command("disk", *arguments)
    assert result.exit_code == status, (result.stdout, result.stderr)
    assert result.stderr.count("\n") == 1
    return str(result.stderr)


# --- folders that are whole ---------------------------------------------------------------------------------------------


def test_show_tells_what_a_folder_has(folder: Path, phalanx_command: Command) -> None:
    told = shown(phalanx_command, "show", folder)
    said = json.loads((folder / "STORE").read_bytes().splitlines()[0])
    assert (told["store"], told["start"], told["cluster"]) == (said["store"], 2, "test")
    assert told["generation"] == "000000000000.0"
    assert told["used_by"] is None
    assert [each["state"] for each in told["segments"]] == ["replayed", "replayed"]
    assert told["log_bytes"] == sum(each["log_bytes"] for each in told["segments"]) > 0
    maps = {each["map"]: each for each in told["maps"]}
    assert {name: each["entries"] for name, each in maps.items()} == {"orders": EACH, "orders\x1b[2J": 1}
    assert maps["orders"]["bytes"] > EACH * len("k1")
    assert [each["partition"] for each in told["replicas"]] == list(range(271))
    assert {each["leader"].partition("/")[0] for each in told["replicas"]} == {told["member"].partition("/")[0]}
    assert sum(each["entries"] for each in told["replicas"]) >= EACH + 1
    assert (told["view"]["members"], told["table"]["partitions"]) == ([told["member"]], 271)
    assert (told["torn"], told["damages"], told["refused"], told["is_clean"]) == (None, [], "", False)


def test_show_tells_people_the_same_and_lets_no_name_drive_their_terminal(
    folder: Path, phalanx_command: Command
) -> None:
    result = phalanx_command("disk", "show", folder)
    assert result.exit_code == 0
    told = shown(phalanx_command, "show", folder)
    for text in (told["store"], told["member"], "2 starts", "orders", f"{EACH}", r"orders\x1b[2J", "271 partitions"):
        assert text in result.stdout
    assert "\x1b" not in result.stdout


def test_records_are_shown_one_a_line_in_order(folder: Path, phalanx_command: Command) -> None:
    told = shown(phalanx_command, "show", folder)
    result = phalanx_command("disk", "show", folder, "--records")
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert [int(row[0]) for row in rows] == list(range(1, told["records"] + 1))
    assert [row[3] for row in rows].count("SegmentStart") == 2
    assert (rows[0][1], rows[0][3]) == (f"1+{HEAD_BYTES}", "SegmentStart")
    result = phalanx_command("disk", "show", folder, "--records", "--json")
    objects = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["lsn"] for each in objects] == [int(row[0]) for row in rows]
    assert objects[0]["record"]["cluster"] == "test"


def test_check_says_what_a_start_would_bring_back(folder: Path, phalanx_command: Command) -> None:
    result = phalanx_command("disk", "check", folder)
    assert result.exit_code == 0
    assert "nothing is damaged: a start brings back 271 replicas of 271 partitions with 201 entries in 2 maps" in (
        result.stdout
    )
    assert shown(phalanx_command, "check", folder)["refused"] == ""


def test_a_folder_stays_as_it_is(folder: Path, phalanx_command: Command) -> None:
    before = state_of(folder)
    for arguments in (("show", folder), ("check", folder), ("show", folder, "--records")):
        assert phalanx_command("disk", *arguments).exit_code == 0
    assert state_of(folder) == before


def test_a_folder_that_is_in_use_is_shown_and_not_checked(cluster: Cluster, phalanx_command: Command) -> None:
    stored = StoredCluster(cluster)
    stored.start()
    with cluster.client() as grid:
        grid.map("orders").update({f"k{number}": number for number in range(EACH)})
        told = shown(phalanx_command, "show", stored.folder())
        assert told["used_by"]["pid"] == stored.member().pid
        assert [(each["map"], each["entries"]) for each in told["maps"]] == [("orders", EACH)]
        assert f"used by pid {stored.member().pid} on host" in refused(phalanx_command, "check", stored.folder())
        grid.map("orders")["still"] = 1  # it goes on
    assert stored.terminate() == 0
    told = shown(phalanx_command, "check", stored.folder())
    assert (told["used_by"], told["is_clean"]) == (None, True)


def test_a_folder_that_was_never_written_to_is_told_as_that(folder: Path, phalanx_command: Command) -> None:
    shutil.rmtree(folder / "000000000000.0")
    assert "its log is gone" in refused(phalanx_command, "show", folder)
    (folder / "STORE").write_bytes(encode_store(new_store()))
    assert "nothing was ever written" in phalanx_command("disk", "show", folder).stdout
    result = phalanx_command("disk", "check", folder)
    assert (result.exit_code, "a start brings back no data" in result.stdout) == (0, True)


# --- folders that are hurt ----------------------------------------------------------------------------------------------


def test_damage_is_told_with_its_place(folder: Path, phalanx_command: Command) -> None:
    first = next(segments_of(folder))
    flip(first, end_of_content(first) // 2)
    line = refused(phalanx_command, "check", folder, status=1)
    result = phalanx_command("disk", "check", folder, "--json")
    (damage,) = json.loads(result.stdout)["damages"]
    assert (result.exit_code, damage["segment"]) == (1, 1)
    assert HEAD_BYTES < damage["offset"] <= end_of_content(first) // 2
    assert f"segment 1 of the log is damaged at byte {damage['offset']}: {damage['reason']}" in line
    result = phalanx_command("disk", "show", folder)
    assert result.exit_code == 0
    assert "segment 1 is damaged at byte" in result.stdout
    assert "view          ver 1: 127.0.0.1:" in result.stdout, "it is in the newest segment, which is whole"
    records = phalanx_command("disk", "show", folder, "--records", "--json").stdout.splitlines()
    numbers = [json.loads(each)["lsn"] for each in records]
    assert numbers[0] == 1
    assert damage["record"] not in numbers
    assert damage["readable_from"] in numbers


def test_a_segment_that_is_missing_is_damage(folder: Path, phalanx_command: Command) -> None:
    next(segments_of(folder)).unlink()
    assert "segment 1 is missing" in refused(phalanx_command, "check", folder, status=1)


def test_a_torn_end_is_told_and_is_no_damage(folder: Path, phalanx_command: Command) -> None:
    last = list(segments_of(folder))[-1]
    overwrite(last, end_of_content(last) - 4, bytes(4))
    told = shown(phalanx_command, "check", folder)
    assert told["torn"]["segment"] == int(last.stem, 16)
    assert told["torn"]["bytes"] > BLOCK_BYTES
    assert told["damages"] == []
    stdout = phalanx_command("disk", "check", folder).stdout
    assert "the end of the log is torn" in stdout
    assert "nothing is damaged" in stdout


def test_a_folder_whose_disk_failed_is_told_and_repaired(folder: Path, phalanx_command: Command) -> None:
    (folder / "FAILED").write_bytes(
        b'{"why":"the sync of 1.log has failed: Input/output error","when":"2026-11-27T10:00:00+00:00"}\n'
    )
    line = refused(phalanx_command, "check", folder, status=1)
    assert "its disk failed at 2026-11-27T10:00:00+00:00 (the sync of 1.log has failed: Input/output error)" in line
    assert line.endswith(f"phalanx disk repair {folder}\n")
    assert "its disk failed at" in phalanx_command("disk", "show", folder).stdout
    assert shown(phalanx_command, "show", folder)["failure"]["when"] == "2026-11-27T10:00:00+00:00"
    result = phalanx_command("disk", "repair", folder)
    assert result.exit_code == 0
    assert f"members start again with {folder}: a start brings back 271 replicas" in result.stdout
    assert phalanx_command("disk", "check", folder).exit_code == 0
    assert "there is nothing to repair" in phalanx_command("disk", "repair", folder).stdout


def test_a_damaged_folder_is_repaired_only_up_to_the_damage_and_when_that_is_said(
    folder: Path, phalanx_command: Command
) -> None:
    (folder / "FAILED").write_bytes(b"")
    first = next(segments_of(folder))
    flip(first, end_of_content(first) // 2)
    before = state_of(folder)
    line = refused(phalanx_command, "repair", folder)
    assert "segment 1 of the log is damaged at byte" in line
    assert line.endswith(f"phalanx disk repair --up-to-damage {folder}\n")
    assert state_of(folder) == before
    result = phalanx_command("disk", "repair", folder, "--up-to-damage")
    assert result.exit_code == 0
    assert f"members start again with {folder}" in result.stdout
    assert shown(phalanx_command, "show", folder)["has_vote"] is False
    assert "are not used: they stay in 000000000000.0 until phalanx disk drop" in result.stdout
    assert "nothing is damaged" in phalanx_command("disk", "check", folder).stdout
    assert {
        place: state for place, state in state_of(folder).items() if place in before and "000000000000.0" in place
    } == {place: state for place, state in before.items() if "000000000000.0" in place}
    assert "it has nothing with that name" in refused(phalanx_command, "drop", folder, "000000000001.0")
    assert phalanx_command("disk", "drop", folder, "000000000000.0").exit_code == 0
    assert phalanx_command("disk", "check", folder).exit_code == 0


# --- what cannot be read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["show", "check"])
def test_what_is_no_data_folder_is_refused(folder: Path, phalanx_command: Command, verb: str) -> None:
    assert "there is no such folder" in refused(phalanx_command, verb, folder / "absent")
    assert "this is no folder" in refused(phalanx_command, verb, folder / "STORE")
    assert "it has no file STORE" in refused(phalanx_command, verb, folder / "000000000000.0")
    assert not (folder / "absent").exists()


@pytest.mark.parametrize("verb", ["show", "check"])
def test_what_another_release_has_written_is_refused(folder: Path, phalanx_command: Command, verb: str) -> None:
    first = next(segments_of(folder))
    head = bytearray(first.read_bytes()[:HEAD_BYTES])
    head[8:12] = (7).to_bytes(4, "little")
    head[-4:] = zlib.crc32(head[:-4]).to_bytes(4, "little")
    overwrite(first, 0, bytes(head))
    assert "its format is 7, and this release reads format 1" in refused(phalanx_command, verb, folder)
    line = (folder / "STORE").read_bytes().splitlines()[0].replace(b'"format":1', b'"format":7')
    (folder / "STORE").write_bytes(b"%b\ncrc32 %08x\n" % (line, zlib.crc32(line)))
    assert "STORE has format 7, and this release of Phalanx reads format 1" in refused(phalanx_command, verb, folder)
    (folder / "STORE").write_bytes(line)
    assert "which says whose data this is, is broken" in refused(phalanx_command, verb, folder)


def test_a_folder_without_rights_is_refused(folder: Path) -> None:
    """By a user without rights there. Root, who can read everything, becomes one in a child."""
    for parent in (folder.parent, folder.parent.parent, folder.parent.parent.parent):
        if str(parent).count("pytest") or parent.owner() == folder.owner():
            parent.chmod(parent.stat().st_mode | 0o011)
    folder.chmod(0o000 if os.geteuid() else 0o700)

    def attempt() -> str:
        if not os.geteuid():
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        try:
            read_stored_log(folder, even_in_use=True)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "it was read"

    user = os.geteuid() or NOBODY
    try:
        assert in_child(attempt) == (
            f"UsageError: data_dir {folder}: this user (uid {user}) cannot read it: run the command as the user of the member"
        )
    finally:
        folder.chmod(0o700)
