"""Probes tell orchestrators when a member works, may be used, and may be stopped."""

import asyncio
import json
import signal
import threading
from pathlib import Path

import pytest

import phalanx
from phalanx.runtime.disk.member_disk import FolderSettings, MemberDisk
from phalanx.runtime.disk.reading_progress import ReadingProgress
from phalanx.runtime.member import Member
from phalanx.runtime.process.processes import start_member_process
from phalanx.testing import LocalCluster
from support.http_asking import ask, listening, until


def test_a_member_that_serves_is_alive_and_ready() -> None:
    with listening() as member:
        assert ask(member.http_port, "/livez")[:2] == (200, "alive\n")
        assert ask(member.http_port, "/readyz")[:2] == (200, "ready\n")
        assert ask(member.http_port, "/readyz", method="HEAD").text == ""
        assert ask(member.http_port, "/readyz", method="POST").status == 405


def test_data_that_is_nowhere_else_makes_a_kill_unsafe() -> None:
    with listening() as member:
        member.map("flights")["UA1"] = "EWR"
        status, text, _ = ask(member.http_port, "/safez")
        assert status == 503
        assert "no other member holds 271 of its partitions" in text
        status, text, _ = ask(member.http_port, "/safez?graceful")
        assert (status, text) == (503, "no member would stay to take over its data\n")


def test_a_member_is_unsafe_to_kill_until_what_others_held_is_whole_again() -> None:
    with LocalCluster(2, heartbeat_timeout_ms=60_000) as cluster:
        member = phalanx.start_member_in_thread(cluster.config(http_port=0))
        with member:
            member.map("flights").put_all({number: bytes(1_000) for number in range(5_000)})
            cluster.until_whole()
            until(member.http_port, "/safez", 200)
            cluster.hang("A")  # without it nothing becomes whole
            cluster.kill("B")
            assert until(member.http_port, "/safez", 503)
            cluster.resume("A")
            assert until(member.http_port, "/safez", 200) == "safe to kill\n"


def test_a_member_whose_master_hangs_is_not_said_to_be_safe_and_says_so_in_time() -> None:
    with LocalCluster(1, heartbeat_timeout_ms=60_000) as cluster:
        member = phalanx.start_member_in_thread(cluster.config(http_port=0))
        with member:
            member.map("flights")["UA1"] = "EWR"
            until(member.http_port, "/safez", 200)
            cluster.hang("A")
            assert "does not answer" in until(member.http_port, "/safez", 503)
            assert ask(member.http_port, "/livez").status == 200
            cluster.resume("A")
            until(member.http_port, "/safez", 200)


def test_a_member_that_has_not_joined_or_waits_for_others_is_alive_and_not_ready() -> None:
    async def run() -> None:
        nobody = phalanx.Config(port=0, http_port=0, seeds=["127.0.0.1:9"], join_attempts=100)
        waits = phalanx.Config(port=0, http_port=0, initial_members=2)
        for config, why in ((nobody, "it has not joined"), (waits, "the cluster waits for more members")):
            member = Member(config)
            starting = asyncio.create_task(member.start())
            await asyncio.sleep(0)  # it listens at once
            assert why in await asyncio.to_thread(until, member.http_port, "/readyz", 503)
            assert (await asyncio.to_thread(ask, member.http_port, "/livez")).status == 200
            assert (await asyncio.to_thread(ask, member.http_port, "/api/members")).status in (200, 503)
            assert (await asyncio.to_thread(ask, member.http_port, "/metrics")).status == 200
            starting.cancel()
            await asyncio.wait([starting])
            assert member.http_port == 0

    asyncio.run(run())


def test_a_member_that_reads_its_log_is_alive_and_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, opened = threading.Event(), MemberDisk.open

    def open_slowly(settings: FolderSettings, may_hold: int, progress: ReadingProgress) -> MemberDisk:
        progress.begin(200)
        progress.note(87)
        assert go_on.wait(20)
        return opened(settings, may_hold)

    monkeypatch.setattr(MemberDisk, "open", open_slowly)

    async def run() -> None:
        member = Member(phalanx.Config(port=0, http_port=0, data_dir=str(tmp_path / "data"), data_dir_is_lasting=True))
        starting = asyncio.create_task(member.start())
        await asyncio.sleep(0)
        port = member.http_port
        assert await asyncio.to_thread(until, port, "/readyz", 503) == "it reads its log back: 43 %\n"
        assert (await asyncio.to_thread(ask, port, "/livez")).status == 200
        for path in ("/safez", "/metrics", "/api/members", "/"):
            answer = await asyncio.to_thread(ask, port, path)
            assert answer[:2] == (503, "it reads its log back: 43 %\n"), path
        go_on.set()
        await starting
        assert await asyncio.to_thread(until, port, "/readyz", 200) == "ready\n"
        assert (await asyncio.to_thread(ask, port, "/metrics")).status == 200
        await member.stop()

    asyncio.run(run())


def test_a_member_process_tells_its_port_and_is_not_ready_while_it_leaves(tmp_path: Path) -> None:
    with LocalCluster(1) as cluster:
        options = [
            "--port",
            "0",
            "--cluster",
            cluster.name,
            "--http-port",
            "0",
            "--partition-count=31",
            "--seed",
            cluster.addresses[0],
        ]
        with start_member_process(tmp_path / "log", options=options) as process:
            process.wait_ready()
            port = json.loads(process.ready_line)["http_port"]
            assert ask(port, "/readyz").status == 200
            with cluster.client() as client:
                client.map("flights").put_all({number: bytes(20_000) for number in range(2_000)})
            cluster.hang("A")  # nobody takes over what it holds
            process.process.send_signal(signal.SIGTERM)
            assert "it is leaving" in until(port, "/readyz", 503)
            assert ask(port, "/livez").status == 200
            cluster.resume("A")
            assert process.process.wait(60) == 0
