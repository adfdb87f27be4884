"""A member that forms a cluster beside another of its name on the same host warns; nothing depends on it."""

import asyncio
import logging
import os
from pathlib import Path

import pytest

import phalanx
from phalanx.common.ids import Address, MemberId
from phalanx.runtime.discovery.neighbours import Neighbours, notes_folder
from support.processes import Cluster, wait_for

THIS = Address("127.0.0.1:9")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Members of other tests note themselves elsewhere."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return notes_folder()


def test_one_that_was_started_without_a_seed_beside_another_says_so(cluster: Cluster) -> None:
    (first,) = cluster.start()
    other = Cluster(cluster.folder / "other")
    other.folder.mkdir()
    try:
        (second,) = other.start()
        text = wait_for(lambda: second.log.read_text() if "--seed" in second.log.read_text() else None, "a warning")
        assert f"beside the one of {first.address} (1 members, master {first.address})" in text
        assert f"--seed {first.address}" in text
        assert "--seed" not in first.log.read_text()
        (joined,) = cluster.start()
        assert "--seed" not in joined.log.read_text()
    finally:
        other.stop()


def test_one_of_another_name_or_in_the_same_cluster_is_no_neighbour(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "phalanx.member")

    async def run() -> None:
        one = await phalanx.start_member(phalanx.Config(port=0, cluster="one"))
        joined = await phalanx.start_member(phalanx.Config(port=0, cluster="one", seeds=(Address(one.address),)))
        Neighbours("one", Address(joined.address), None)._write()
        Neighbours("one", Address(one.address), None)._write()
        look = Neighbours("one", Address(one.address), None)
        await asyncio.to_thread(look.tell_of_others, one.id)
        await asyncio.to_thread(Neighbours("two", THIS, None).tell_of_others, joined.id)
        assert caplog.messages == []
        await asyncio.to_thread(Neighbours("one", THIS, None).tell_of_others, MemberId("127.0.0.1:9/x"))
        assert len(caplog.messages) == 1
        for member in (joined, one):
            await member.stop(drain=False)

    asyncio.run(run())


def test_notes_of_the_dead_and_nonsense_are_passed_over(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    look = Neighbours("test", THIS, None)
    look._write()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    left_over = folder / f"{pid}-5701"
    left_over.write_text("test\n127.0.0.1:1\n")
    (folder / f"{os.getpid()}-1").write_text("test\nnowhere\n")
    (folder / f"{os.getpid()}-2").write_bytes(b"\xff\xfe")
    (folder / f"{os.getpid()}-3").write_text("test\n127.0.0.1:1\n")
    (folder / "note").write_text("test\n127.0.0.1:1\n")
    look.tell_of_others(MemberId("127.0.0.1:9/x"))
    assert not left_over.exists()
    assert caplog.messages == []
    look.withdraw()
    look.withdraw()


def test_a_folder_that_others_can_write_is_not_used(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    look = Neighbours("test", THIS, None)
    look._write()
    assert list(folder.iterdir()) == []
    assert list(look.noted()) == []


def test_a_member_starts_where_nothing_can_be_noted(folder: Path) -> None:
    folder.write_text("a file in the place of the folder")

    async def run() -> None:
        member = await phalanx.start_member(phalanx.Config(port=0))
        await member.map("m").put(1, 2)
        await member.stop()

    asyncio.run(run())
