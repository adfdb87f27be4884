"""Calls are traced where a program or its environment wants it, and only there is OpenTelemetry needed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import phalanx
from phalanx.client.blocking.sync_map import SyncMap
from phalanx.maps.async_map import AsyncMap
from phalanx.maps.tracing import find_tracing
from phalanx.runtime.local.embedded import EmbeddedMap
from phalanx.runtime.local.local_map import LocalMap
from support.http_asking import ask
from support.spans import exporter, take_names

MISSING = "^tracing needs opentelemetry-api: pip install 'phalanx\\[tracing\\]'$"


@pytest.fixture(scope="module")
def member() -> Iterator[phalanx.MemberThread]:
    with phalanx.start_member_in_thread(phalanx.Config(port=0, partition_count=31)) as made:
        yield made


@pytest.fixture
def without_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "phalanx.maps.traced_maps", raising=False)
    for name in [each for each in sys.modules if each.partition(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)


def test_it_is_off_unless_it_is_wanted(member: phalanx.MemberThread) -> None:
    async def run() -> None:
        async with phalanx.connect(member.address) as grid:
            assert type(grid.map("m")) is AsyncMap
        async with await phalanx.start_member(phalanx.Config(port=0)) as other:
            assert type(other.map("m")) is EmbeddedMap

    assert type(member.map("m")) is LocalMap
    with phalanx.Client(member.address) as client:
        assert type(client.map("m")) is SyncMap
    asyncio.run(run())


def test_without_it_nothing_of_opentelemetry_is_imported() -> None:
    program = """
import sys, phalanx
with phalanx.start_member_in_thread(phalanx.Config(port=0, partition_count=31)) as member:
    member.map("m")["a"] = 1
    with phalanx.Client(member.address) as client:
        assert client.map("m")["a"] == 1
print([name for name in sys.modules if name.startswith("opentelemetry") or name == "phalanx.maps.traced_maps"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.mark.parametrize(
    ("given", "variable", "is_on"),
    [
        (None, None, False),
        (None, "", False),
        (None, "true", True),
        (None, "1", True),
        (None, " True ", True),
        (None, "false", False),
        (None, "0", False),
        (False, "true", False),
        (True, "false", True),
        (True, None, True),
    ],
)
def test_an_argument_wins_over_the_variable(
    monkeypatch: pytest.MonkeyPatch, given: bool | None, variable: str | None, is_on: bool
) -> None:
    if variable is None:
        monkeypatch.delenv("PHALANX_TRACING", raising=False)
    else:
        monkeypatch.setenv("PHALANX_TRACING", variable)
    assert find_tracing(given) is is_on


def test_clients_and_members_take_the_variable(member: phalanx.MemberThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_TRACING", "true")
    exporter()

    async def run() -> None:
        async with phalanx.connect(member.address) as grid:
            await grid.map("m").get("asked by a client with asyncio")
        async with phalanx.connect(member.address, tracing=False) as grid:
            await grid.map("m").get("not traced")

    take_names()
    with phalanx.Client(member.address) as client:
        client.map("m").get("asked by a client")
    asyncio.run(run())
    assert take_names() == ["get m", "get m"]
    assert phalanx.load_config(port=0).tracing is True
    monkeypatch.delenv("PHALANX_TRACING")
    assert phalanx.load_config(port=0).tracing is False


@pytest.mark.parametrize("given", ["true", 1, "the provider"])
def test_what_is_no_bool_is_refused(member: phalanx.MemberThread, given: Any) -> None:
    for make in (phalanx.Client, phalanx.connect):
        with pytest.raises(phalanx.UsageError, match=r"^tracing: .* is of type \w+: give True, False or None$"):
            make(member.address, tracing=given)
    with pytest.raises(phalanx.UsageError, match=r"^tracing: "):
        phalanx.Config(tracing=given)


def test_a_variable_that_is_no_bool_is_refused(member: phalanx.MemberThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_TRACING", "perhaps")
    for make in (phalanx.Client, phalanx.connect):
        with pytest.raises(
            phalanx.UsageError, match=r"^PHALANX_TRACING: .*perhaps.* does not fit: give true or false$"
        ):
            make(member.address)
    with pytest.raises(phalanx.UsageError, match=r"^PHALANX_TRACING: .*perhaps"):
        phalanx.load_config(port=0)


@pytest.mark.usefixtures("without_opentelemetry")
def test_without_the_extra_it_says_what_to_install(member: phalanx.MemberThread) -> None:
    async def connect() -> None:
        with pytest.raises(phalanx.UsageError, match=MISSING):
            await phalanx.connect(member.address, tracing=True)
        with pytest.raises(phalanx.UsageError, match=MISSING):
            await phalanx.start_member(phalanx.Config(port=0, tracing=True))

    with pytest.raises(phalanx.UsageError, match=MISSING):
        phalanx.Client(member.address, tracing=True)
    with pytest.raises(phalanx.UsageError, match=MISSING):
        phalanx.start_member_in_thread(phalanx.Config(port=0, tracing=True))
    asyncio.run(connect())
    with phalanx.Client(member.address) as client:
        assert client.map("m").get("a") is None, "nobody needs it who does not trace"


def test_what_the_http_port_asks_is_no_call_of_the_program() -> None:
    exporter()
    with phalanx.start_member_in_thread(
        phalanx.Config(port=0, http_port=0, partition_count=31, tracing=True)
    ) as member:
        member.map("flights")["UA1"] = "EWR"
        assert take_names()[-1:] == ["put flights"]
        [told] = ask(member.http_port, "/api/maps").json["maps"]
        assert (told["map"], told["size"]) == ("flights", 1)
    assert take_names() == []
