"""What sources of seeds give, how they fail, and that none of it makes anybody wait."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.common.errors import ConnectError, UsageError
from phalanx.common.ids import Address
from phalanx.common.seeds import MOST_FOUND, DnsSource, FileSource, parse_members, parse_seed
from phalanx.net import seed_lookups
from phalanx.net.seed_lookups import FoundSeeds, SeedLookups, SeedPlaces, look_up
from support.processes import wait_for

NAME = DnsSource("members.test", 5701)


def answer_with(monkeypatch: pytest.MonkeyPatch, resolve: Callable[[], list[str]]) -> None:
    """The resolver gives these hosts, or raises."""
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *more: Any, **named: Any) -> Any:
        if host != NAME.name:
            return real(host, port, *more, **named)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in resolve()]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def addresses(*texts: str) -> tuple[Address, ...]:
    return tuple(map(Address, texts))


def found_by(lookups: SeedLookups) -> FoundSeeds:
    """Ask until something has changed, as callers do: a thread that has just answered, and is about to end, is not asked again."""

    def ask() -> FoundSeeds | None:
        lookups.ask()
        return lookups.take_changes()

    return wait_for(ask, "the look-up has ended")


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("10.0.0.1:5701", "10.0.0.1:5701"),
        ("dns:5701", "dns:5701"),
        ("file:5701", "file:5701"),
        ("dns:members.test:5701", NAME),
        (" dns:members.test.:05701 ", DnsSource("members.test.", 5701)),
        ("file:/etc/seeds", FileSource("/etc/seeds")),
        ("file:seeds", FileSource("seeds")),
    ],
)
def test_a_seed_is_an_address_a_name_or_a_file(text: str, means: object) -> None:
    assert parse_seed(text) == means
    assert parse_seed(str(means)) == means


@pytest.mark.parametrize(
    "text", ["dns:", "dns:members", "dns:a:b", "dns:a:0", "file:", "members.test", "dns:a b:5701", ""]
)
def test_what_is_no_seed_is_refused_with_the_forms_expected(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected (host:port|dns:NAME:PORT|file:PATH)"):
        parse_seed(text)


def test_seeds_are_given_as_a_list_or_in_one_text() -> None:
    assert (
        parse_members("a:1, dns:b:2,")
        == parse_members(["a:1", "dns:b:2"])
        == (
            ["a:1", DnsSource("b", 2)],
            None,
        )
    )
    for nothing in ("", " , ", 5, [1]):
        with pytest.raises(UsageError, match="does not name a member"):
            parse_members(nothing)  # type: ignore[arg-type]  # on purpose


def test_a_name_gives_all_its_addresses_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, lambda: ["10.0.0.2", "10.0.0.1", "10.0.0.2", "2001:db8::1", "fe80::1%eth0", "0.0.0.0"])
    assert found_by(SeedLookups([NAME])) == FoundSeeds(
        addresses("10.0.0.1:5701", "10.0.0.2:5701", "[2001:db8::1]:5701"), ()
    )


def test_hundreds_of_records_are_bounded_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, lambda: [f"10.0.{number % 4}.{number // 4}" for number in range(900)])
    found = found_by(SeedLookups([NAME]))
    assert len(found.addresses) == MOST_FOUND
    assert found.addresses == tuple(sorted(found.addresses))
    assert found.failures == (f"900 addresses were found; the first {MOST_FOUND} are used",)


def test_a_failure_is_told_and_takes_nothing_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seed_lookups, "ASK_EVERY_S", 0.0)
    answers: list[Exception | str] = ["10.0.0.1"]

    def resolve() -> list[str]:
        answer = answers[0]
        if isinstance(answer, Exception):
            raise answer
        return [answer]

    answer_with(monkeypatch, resolve)
    lookups = SeedLookups([NAME])
    assert found_by(lookups).addresses == ("10.0.0.1:5701",)
    for error in (socket.gaierror(socket.EAI_AGAIN, "try again"), UnicodeError("label too long"), ValueError("odd")):
        answers[0] = error
        found = found_by(lookups)
        assert found.addresses == ("10.0.0.1:5701",)
        assert "dns:members.test:5701: " in found.failures[0]
    answers[0] = "10.0.0.7"
    assert found_by(lookups) == FoundSeeds(addresses("10.0.0.7:5701"), ())


def test_a_resolver_that_hangs_is_told_and_asked_by_one_thread_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seed_lookups, "LATE_AFTER_S", 0.05)
    goes_on, asked = threading.Event(), []

    def resolve() -> list[str]:
        asked.append(1)
        goes_on.wait(30)
        return ["10.0.0.1"]

    answer_with(monkeypatch, resolve)
    lookups = SeedLookups([NAME])
    began = time.monotonic()
    found = found_by(lookups)
    assert found == FoundSeeds((), ("dns:members.test:5701: no answer for 0.05 s",))
    for _ in range(50):
        lookups.ask()
    assert time.monotonic() - began < 10
    goes_on.set()
    assert wait_for(lookups.take_changes, "it has answered").addresses == ("10.0.0.1:5701",)
    assert len(asked) == 1


def test_a_file_has_an_address_a_line_and_what_is_wrong_in_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "seeds"
    path.write_text("# members\n10.0.0.1:5701\n\n  host:05702 # the second\nnonsense\n")
    answer = look_up(FileSource(str(path)))
    assert answer.addresses == ["10.0.0.1:5701", "host:5702"]
    assert len(answer.failures) == 1
    assert "line 5: 'nonsense' is not an address" in answer.failures[0]
    path.write_bytes(b"\xff\xfe\n" + b"#" * 300_000)
    assert "longer than" in look_up(FileSource(str(path))).failures[0]
    path.write_text("")
    assert look_up(FileSource(str(path))).failures == [f"file:{path}: it has no address"]
    path.unlink()
    assert look_up(FileSource(str(path))).failures == [f"file:{path}: No such file or directory"]


def test_a_client_waits_for_a_first_address_and_says_why_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "seeds"
    threading.Timer(0.3, path.write_text, ["10.0.0.1:5701\n"]).start()
    places = SeedPlaces(f"file:{path}")
    assert 0 < places.wait(30) < 30
    assert places.addresses == ["10.0.0.1:5701"]
    nowhere = f"file:{tmp_path / 'nowhere'}"
    with pytest.raises(ConnectError, match=r"no address of a member was found within 0\.2 s: file:.*No such file"):
        SeedPlaces(nowhere).wait(0.2)
    with pytest.raises(ConnectError, match="No such file"):
        phalanx.Client(nowhere, connect_timeout_s=0.2)
    with pytest.raises(ConnectError, match="No such file"):
        asyncio.run(_connect(nowhere))


async def _connect(members: str) -> None:
    async with phalanx.connect(members, connect_timeout_s=0.2):
        pass


def test_clients_follow_a_file_when_all_members_have_gone_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "seeds"

    async def follow() -> None:
        first = await phalanx.start_member(phalanx.Config(port=0))
        path.write_text(f"{first.address}\n")
        async with phalanx.connect(f"file:{path}") as grid:
            entries = grid.map("m")
            await entries.put("k", 1)
            blocking = await asyncio.to_thread(phalanx.Client, f"file:{path}")
            assert await asyncio.to_thread(blocking.map("m").get, "k") == 1
            await first.stop(drain=False)
            second = await phalanx.start_member(phalanx.Config(port=0))
            path.write_text(f"{second.address}\n")
            assert await entries.get("k") is None
            assert await asyncio.to_thread(blocking.map("m").get, "k") is None
            blocking.close()
        await second.stop()

    asyncio.run(follow())
