"""What comes from outside is shown as what it is: no line is forged, no terminal driven, and one odd entry stops no scan."""

import datetime as dt
import json
import logging
import os
import re
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text as RichText

from phalanx.cli.output import EscapedText, as_cell, console, table
from phalanx.codec.values import to_data, to_key_data
from phalanx.common.ids import host_and_port
from phalanx.common.words import UNSAFE
from phalanx.reports.value_json import as_json, as_text
from phalanx.runtime.logs.log_text import LOGGED_CHARACTERS, Listed
from phalanx.wire.codec import encode_frame
from phalanx.wire.handshake import MAX_CLIENT_LENGTH
from phalanx.wire.messages import PROTOCOL_VERSION, Hello
from support.commands import Ask, Command
from support.processes import Cluster, wait_for

HOSTILE = "a\n12:00:00.000 WARNING forged\x1b[2J\x9b31m\u202eb\u2028[red]x[/red] :boom:"
HUGE = 10**5000
NO_UNICODE = os.fsdecode(b"caf\xe9")


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    members = Cluster(tmp_path_factory.mktemp("single"))
    try:
        members.start(1)
        yield members
    finally:
        members.stop()


@pytest.fixture
def ask(phalanx_command: Command, single: Cluster) -> Ask:
    """Runs a command against the member."""

    def run(*arguments: object, status: int = 0) -> Any:
        result = phalanx_command(*arguments, "--at", single.members[0].address, "--cluster", single.name)
        assert result.exit_code == status, result.stderr
        assert "Traceback" not in result.stderr
        assert not UNSAFE.search((result.stdout + result.stderr).replace("\n", "").replace("\t", ""))
        return result

    return run


# --- a member's log ---------------------------------------------------------------------------------------------------


def test_the_name_of_a_client_forges_no_line_of_a_members_log(single: Cluster) -> None:
    member = single.members[0]
    with socket.create_connection(host_and_port(member.address)) as sock:
        sender = f"client/{HOSTILE}".ljust(MAX_CLIENT_LENGTH, "x")
        assert len(sender) == MAX_CLIENT_LENGTH, "longer ones are refused at the greeting"
        sock.sendall(encode_frame(Hello(PROTOCOL_VERSION, single.name, sender, member.address, b"")))
        assert sock.recv(1 << 16)
        sock.sendall(b"\0\0\0\4\xc1\xc1\xc1\xc1")
        assert sock.recv(1 << 16) == b""
    wait_for(lambda: "closing the connection of client/" in member.log.read_text(), "the log tells of it")
    log = member.log.read_text()
    assert not UNSAFE.search(log.replace("\n", ""))
    assert not re.search("^12:00:00.000 WARNING forged", log, re.MULTILINE)
    assert max(map(len, log.splitlines())) < LOGGED_CHARACTERS + 500


def test_records_are_escaped_for_any_handler(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("phalanx.member")
    logger.warning("%s says %d: %s", HOSTILE, 7, ValueError("x\ny"))
    logger.warning("%s", Listed.of(["one [", "  two\nthree", "  four", "]"]))
    assert caplog.messages[0].endswith(r"\x1b[2J\x9b31m\u202eb\u2028[red]x[/red] :boom: says 7: x\ny")
    assert "\n" not in caplog.messages[0]
    assert caplog.messages[1] == "one [two\\nthree, four]"


# --- entries ----------------------------------------------------------------------------------------------------------


def test_hostile_names_keys_and_values_are_shown_as_what_they_are(ask: Ask, single: Cluster) -> None:
    with single.client() as grid:
        grid.map(HOSTILE)[HOSTILE] = HOSTILE
        grid.map("values").update({"plain": "[red]text[/red]\n\tof two lines", "hostile": HOSTILE})
    assert json.loads(ask("map", "get", HOSTILE, HOSTILE).stdout) == HOSTILE
    assert json.loads(ask("map", "get", HOSTILE, HOSTILE, "--json").stdout)["value"] == HOSTILE
    [line] = ask("map", "scan", HOSTILE).stdout.splitlines()
    assert [json.loads(cell) for cell in line.split("\t")] == [HOSTILE, HOSTILE]
    assert json.loads(ask("map", "scan", HOSTILE, "--json").stdout) == {"key": HOSTILE, "value": HOSTILE}
    assert ask("map", "get", "values", "plain").stdout == "[red]text[/red]\n\tof two lines\n"
    ask("map", "journal", HOSTILE, "--capacity", "10")
    ask("map", "put", HOSTILE, "k", HOSTILE)
    assert len(ask("map", "events", HOSTILE).stdout.splitlines()) == 1
    ask("map", "max-entries", HOSTILE, "7")
    assert (
        len(ask("map", "backups").stdout.splitlines()) == len(ask("map", "settings", "--json").stdout.splitlines()) + 1
    )
    ask("map", "settings")
    missing = ask("map", "get", HOSTILE + "x", HOSTILE, status=1).stderr
    assert (missing.count("\n"), missing.startswith("phalanx: map 'a\\n12:00")) == (1, True)


def test_one_odd_entry_breaks_no_scan(ask: Ask, single: Cluster) -> None:
    unknown, broken = b"\0\0\0\x63" + bytes(100), to_data("text")[:-1]
    odd = {
        "huge": to_data(HUGE), "in a list": to_data([HUGE, {"x": -HUGE}]), "unknown": unknown, "broken": broken,
        "nan": to_data([float("nan"), float("-inf"), -0.0]), "last": to_data(dt.timedelta.max),
        "decimal": to_data(Decimal("1E+999999")), "alike": to_data({1: "int", "1": "str"}),
        "first": to_data([dt.datetime.min, dt.datetime.max, dt.date.min]), "deep": to_data(nested(190)),
        "deeper": b"\0\0\x4d\x50" + b"\x91" * 900 + b"\xc0", "huge key": to_data(1),
    }  # fmt: skip
    keys = [to_key_data(HUGE if name == "huge key" else name) for name in odd]
    with single.client() as grid:
        grid.map("odd").put_data(keys, list(odd.values()))
    rows = [json.loads(line) for line in ask("map", "scan", "odd", "--json").stdout.splitlines()]
    found = {row["key"]: row["value"] for row in rows}
    assert len(found) == len(odd)
    assert found[hex(HUGE)] == 1
    assert found["huge"] == hex(HUGE)
    assert found["in a list"] == [hex(HUGE), {"x": hex(-HUGE)}]
    assert found["unknown"]["undecodable"] == {
        "type_id": 99, "bytes": 104, "hex": " ".join(["00000000"] * 8) + "…",
        "why": "this type id is unknown here",
    }  # fmt: skip
    assert "the length at byte 4 says 4, but 3 bytes follow" in found["broken"]["undecodable"]["why"]
    assert found["nan"] == ["NaN", "-Infinity", -0.0]
    assert found["alike"] == [[1, "int"], ["1", "str"]]
    lines = ask("map", "scan", "odd").stdout.splitlines()
    assert len(lines) == len(odd)
    assert f'huge\t"{hex(HUGE)}"' in lines
    assert any(line.startswith("unknown\t<type id 99, 104 bytes 00000000 ") for line in lines)
    for name in odd.keys() - {"huge key"}:
        ask("map", "get", "odd", name)
    assert ask("map", "remove", "odd", "unknown").stdout.startswith("<type id 99")
    ask("map", "get", "odd", "unknown", status=1)


def test_numbers_of_any_length_are_stored_as_numbers(ask: Ask, phalanx_command: Command, single: Cluster) -> None:
    digits = "1" + "0" * 5000
    ask("map", "put", "long", digits, f"[{digits}, -{digits}]", "--key-type", "int")
    with single.client() as grid:
        assert grid.map("long")[HUGE] == [HUGE, -HUGE]
    assert json.loads(ask("map", "get", "long", hex(HUGE), "--key-type", "int").stdout) == [hex(HUGE), hex(-HUGE)]
    name = ("--at", single.members[0].address, "--cluster", single.name)
    gone = phalanx_command("map", "get", "long", "--key-type", "int", *name, "--", f"-{digits}")
    assert (gone.exit_code, len(gone.stderr) < 5_000) == (1, True)
    refused = ask("map", "get", "long", "-7", "--key-type", "int", status=2).stderr
    assert "No such option: -7; for a negative number write -- in front of it" in refused


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["map", "put", "m", "k", "[" * 100_000], "the value '[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[['"),
        (["map", "get", "m", "[" * 100_000, "--key-type", "json"], "it is nested too deeply"),
        (["map", "get", NO_UNICODE, "k"], r"map name: 'caf\udce9' holds a lone surrogate at index 3"),
        (["map", "get", "m", NO_UNICODE], "key: str holds a lone surrogate at index 3"),
        (["map", "put", "m", "k", NO_UNICODE], "value: str holds a lone surrogate at index 3"),
        (["map", "put", "m", "k", r'"\ud800"'], "value: str holds a lone surrogate at index 0"),
        (["map", "backups", NO_UNICODE, "--sync", "0"], r"map name: 'caf\udce9' holds a lone surrogate"),
        (["map", "size", ""], "cannot name a map"),
        (["map", "size", "x" * 10_000], "(10,000 characters) cannot name a map"),
        (["map", "put", "m", "k", "v", "--ttl", "inf"], "ttl is inf"),
        (["map", "get", "m", "7.5.1", "--key-type", "decimal"], "is not a key of --key-type decimal"),
        (["map", "get", "m", "zz", "--key-type", "bytes"], "expected hexadecimal digits"),
    ],
    ids=lambda value: None,
)
def test_what_cannot_be_meant_is_told_in_one_line(ask: Ask, arguments: tuple[str, ...], told: str) -> None:
    result = ask(*arguments, status=2)
    assert (result.stderr.count("\n"), result.stdout) == (1, "")
    assert told in result.stderr
    assert len(result.stderr) < 1_000


@pytest.mark.parametrize("at", [NO_UNICODE + ":5701", "a..b:5701", "x" * 300 + ":5701", "h:" + "9" * 5_000, "a b:5701"])
def test_what_is_no_address_is_told_in_one_line(phalanx_command: Command, at: int) -> None:
    for command in (["members"], ["map", "size", "m"], ["member", "--seed", at, "--port", "0"]):
        given = command if "--seed" in command else [*command, "--at", at]
        result = phalanx_command(*given)
        assert (result.exit_code, result.stderr.count("\n"), result.stdout) == (2, 1, "")
        assert "is not an address: expected host:port" in result.stderr
        assert len(result.stderr) < 1_000


def test_names_that_are_no_unicode_are_refused_in_all_clients(
    phalanx_command: Command, single: Cluster, tmp_path: Path
) -> None:
    address = single.members[0].address
    code = """
import asyncio, sys, phalanx
at, name = sys.argv[1:]
BAD = "a\\udcff"
def told(call):
    try:
        call()
    except phalanx.UsageError as error:
        print(error)
with phalanx.Client(at, cluster=name) as grid:
    told(lambda: grid.map(BAD))
    told(lambda: grid.journal(BAD))
told(lambda: phalanx.Client(at, cluster=BAD))
async def main():
    async with phalanx.connect(at, cluster=name) as grid:
        told(lambda: grid.map(BAD))
    try:
        async with phalanx.connect(at, cluster=BAD):
            pass
    except phalanx.UsageError as error:
        print(error)
    member = await phalanx.start_member(phalanx.Config(port=0))
    told(lambda: member.map(BAD))
    await member.stop()
asyncio.run(main())
told(lambda: phalanx.Config(zone=BAD))
told(lambda: phalanx.Config(cluster=BAD))
told(lambda: phalanx.Config(maps={BAD: {"max_entries": 1}}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, address, single.name], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "map name", "map name", "cluster", "map name", "cluster", "map name", "zone", "cluster", "maps",
    ]  # fmt: skip
    assert all(r"'a\udcff' holds a lone surrogate at index 1" in line for line in lines)
    for arguments in (["members", "--at", address, "--cluster", NO_UNICODE], ["member", "--zone", NO_UNICODE]):
        result = phalanx_command(*arguments)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert "holds a lone surrogate at index 3" in result.stderr


@pytest.mark.parametrize("members", ["9" * 5_000, "0", "5001"])
def test_a_number_of_members_that_cannot_be_is_told_in_one_line(phalanx_command: Command, members: str) -> None:
    result = phalanx_command("what-if", "--members", members)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "from 1 to 5000" in result.stderr
    assert len(result.stderr) < 1_000


# --- how it is printed ------------------------------------------------------------------------------------------------


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [HOSTILE, NO_UNICODE, [NO_UNICODE, {NO_UNICODE: 1}], HUGE, [float("nan")], nested(5_000), {1: 2, "1": 3},
     {b"k": dt.datetime.max}, Decimal("-Infinity"), uuid.UUID(int=1), dt.timedelta.min, {(1, 2): None}, "\U000e0041"],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_anything_is_json_without_acting_characters(value: object) -> None:
    text = as_json(value)
    json.loads(text)
    assert not UNSAFE.search(text)
    assert not UNSAFE.search(as_cell(value))
    assert not UNSAFE.search(as_text(value).replace("\n", ""))


def test_tables_and_texts_print_no_markup_and_nothing_that_acts(capsys: pytest.CaptureFixture[str]) -> None:
    rows = table(HOSTILE, "column")
    rows.add_row(HOSTILE)
    rows.add_row(EscapedText(HOSTILE, style="red"))
    out = console()
    out.print(rows)
    out.print(HOSTILE, soft_wrap=True)
    out.print(EscapedText.assemble((HOSTILE, "red"), HOSTILE), soft_wrap=True)
    line = EscapedText(HOSTILE)
    line.append(HOSTILE)
    line.append(RichText("of ours"))
    out.print(line, soft_wrap=True)
    printed = capsys.readouterr().out
    assert not UNSAFE.search(printed.replace("\n", ""))
    assert printed.count("[red]x[/red] :boom:") == 8
    assert not re.search("^12:00", printed, re.MULTILINE)


def test_an_output_that_cannot_be_written_is_told_in_one_line(single: Cluster) -> None:
    name = ["--at", single.members[0].address, "--cluster", single.name]
    command = [sys.executable, "-m", "phalanx", "map", "scan", "values", "--json", *name]
    with single.client() as grid, open("/dev/full", "w") as full:
        grid.map("values").put_all((number, "x" * 1_000) for number in range(100))
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "phalanx: No space left on device\n")


def test_another_encoding_of_the_terminal_breaks_no_command(single: Cluster) -> None:
    command = [sys.executable, "-m", "phalanx", "safe", "--at", single.members[0].address, "--cluster", single.name]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert r"\u2717" in done.stdout
