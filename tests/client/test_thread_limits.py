"""Where the system refuses a further thread: calls fail in words, nothing is left behind, and what is later works again."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.client.parallel_connections import ask_in_parallel, connect_in_parallel
from phalanx.common.errors import ConnectError
from phalanx.common.ids import Address, MemberId
from phalanx.maps.locks import renew_plan
from phalanx.runtime.discovery.neighbours import Neighbours
from phalanx.runtime.logs.rotating_log import RotatingLogFile
from support.leases import LEASE_S, Renewals
from support.processes import wait_for

REFUSED = "can't start new thread"


class Threads:
    """Decides whether threads may begin."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.are_refused = False
        start = threading.Thread.start

        def begin(thread: threading.Thread) -> None:
            if self.are_refused:
                raise RuntimeError(REFUSED)
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", begin)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    return Threads(monkeypatch)


@pytest.fixture(scope="module")
def grid() -> Iterator[phalanx.MemberThread]:
    with phalanx.start_member_in_thread(phalanx.Config(port=0)) as member:
        yield member


def test_a_lock_that_could_not_be_renewed_is_not_held_and_later_ones_are_renewed(
    grid: phalanx.MemberThread, threads: Threads
) -> None:
    with phalanx.Client(grid.address) as client, phalanx.Client(grid.address) as another:
        client.map("m").get("k")
        threads.are_refused = True
        lock = client.lock("a", lease=3_600)
        with pytest.raises(phalanx.UnavailableError, match=f"lock 'a' .*{REFUSED}"):
            lock.acquire()
        assert not lock.is_held
        assert another.lock("a").status().holders == ()
        threads.are_refused = False
        with client.lock("a", lease=LEASE_S, wait=0) as held:
            first, renewals = another.lock("a").status().holders, Renewals()
            wait_for(lambda: renewals.are_seen(another.lock("a").status()), "it is renewed")
            assert held.is_held
            assert another.lock("a").status().holders == first


def test_a_renewal_that_fails_for_any_reason_is_tried_again(
    grid: phalanx.MemberThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    renew, failures = renew_plan, [ZeroDivisionError("a defect")]

    def renew_at_last(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return renew(*arguments)

    monkeypatch.setattr("phalanx.client.blocking.sync_leases.renew_plan", renew_at_last)
    with phalanx.Client(grid.address) as client, client.lock("failing", lease=LEASE_S) as lock:
        renewals = Renewals()
        wait_for(lambda: renewals.are_seen(lock.status()), "it is renewed")
        assert lock.is_held
    assert "a defect" in caplog.text


class Fake:
    address = Address("a:1")

    def member(self) -> MemberId:
        return MemberId("a:1/1")

    def close(self) -> None:
        """Do nothing."""


def test_a_connection_that_no_thread_can_make_failed(threads: Threads) -> None:
    threads.are_refused = True
    (failure,) = connect_in_parallel([Fake()], 60)
    assert isinstance(failure, ConnectError)
    assert REFUSED in str(failure)
    assert list(ask_in_parallel([Fake()], lambda each: each.member(), 60)) == []


def test_a_member_that_can_have_no_thread_says_so(threads: Threads) -> None:
    threads.are_refused = True
    with pytest.raises(phalanx.UnavailableError, match=f"'phalanx-member' cannot be started: {REFUSED}"):
        phalanx.start_member_in_thread(phalanx.Config(port=0))


def test_what_a_member_does_besides_is_left_out(
    threads: Threads, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    threads.are_refused = True
    Neighbours("phalanx", Address("127.0.0.1:5701"), None).announce()
    log = RotatingLogFile(tmp_path / "log", 1, 0, 0)
    for line in (b"one\n", b"two\n"):
        log.open()
        log.write(line)
        log.close()
    assert sorted(each.read_bytes() for each in tmp_path.iterdir()) == [b"one\n", b"two\n"]
    assert "stays uncompressed" in caplog.text
