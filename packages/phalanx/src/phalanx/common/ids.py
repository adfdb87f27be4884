"""Identities and units.

A member is its address *and* its incarnation: a process restarted on the same address is another member, and a
message meant for the old one never reaches the new one. All identities are strings, so that they hash fast, sort the
same everywhere, travel as they are and read well in a trace; `NewType` keeps them apart for the type checker.
"""

from __future__ import annotations

from typing import NewType

from phalanx.common.errors import UsageError
from phalanx.common.words import quoted

MAX_PORT_DIGITS = 9
"""The most digits of a port. An int of very many digits is not even read."""

Millis = int
"""Milliseconds of a monotonic clock that the driver chose; never wall-clock time."""

NEVER: Millis = 1 << 62
"""A time that never comes."""
MAX_TTL_MS: Millis = 10 * 365 * 86_400_000
"""The longest time to live: ten years."""

Address = NewType("Address", str)
"""Where a process listens: `host:port` (an IPv6 host in brackets)."""

MemberId = NewType("MemberId", str)
"""One incarnation of a member: `host:port/incarnation`."""

ClientId = NewType("ClientId", str)
"""One connection of a client: `client/` and a number that the driver gives; it ends with the connection."""

Target = MemberId | Address | ClientId
"""The receiver of a message: a member, the process that listens at an address (joining only), or a client."""

Lost = tuple[tuple[str, ...], ...]
"""Members that were lost while they may have served one call: those of each of its rounds of requests."""


def divided_leader(leader: str, partition_count: int) -> str:
    """Return the owner of the parts of a divided partition, until they have one of their own. It has the former count, so that a
    late write of the old partition fits no part. `leader`: that of the partition; empty: it had none."""
    return f"{leader} of {partition_count}" if leader else ""


def member_id(address: Address, incarnation: str) -> MemberId:
    """Return the identity of a member from its address and incarnation."""
    return MemberId(f"{address}/{incarnation}")


def address_of(target: MemberId | Address) -> Address:
    """Return the address in a member's identity. An address is returned as it is."""
    return Address(target.partition("/")[0])


def incarnation_of(member: MemberId) -> str:
    """Return the incarnation in a member's identity; empty for an address."""
    return member.partition("/")[2]


def is_member(target: str) -> bool:
    """Return whether the identity names one incarnation of a member, and not an address or a client."""
    return "/" in target and not target.startswith("client/")


def is_client(target: str) -> bool:
    """Return whether the identity names a client's connection."""
    return target.startswith("client/")


def parse_address(text: str) -> Address:
    """Check and normalise `host:port`. Raises `UsageError` that quotes the text and shows the form expected."""
    host, colon, port = text.strip().rpartition(":")
    is_port = port.isdecimal() and len(port) <= MAX_PORT_DIGITS and 0 < int(port) < 65536
    if not colon or not is_port or not _is_host(host):
        raise UsageError(f"{quoted(text)} is not an address: expected host:port, for example 127.0.0.1:5701")
    return Address(f"{host}:{int(port)}")


def _is_host(text: str) -> bool:
    """Return whether a resolver can look up this name: it is text, and no part of it is empty or too long."""
    if "/" in text or any(map(str.isspace, text)):
        return False
    if text.isascii():
        return all(0 < len(label) < 64 for label in text.removesuffix(".").split("."))
    try:
        return bool(text.encode("idna"))
    except UnicodeError:
        return False


def host_and_port(address: Address) -> tuple[str, int]:
    """Split an address for a socket call."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def host_of(member: MemberId) -> str:
    """Return the host at which a member listens."""
    return address_of(member).rpartition(":")[0]


def may_be_member(text: str) -> bool:
    """Return whether a member can have this identity, so that messages for it can be sent to the address in it."""
    member = MemberId(text)
    try:
        return bool(incarnation_of(member)) and bool(parse_address(address_of(member)))
    except UsageError:
        return False


def log_form(member: MemberId) -> str:
    """Return a member as member lists and log lines show it: `Member [host]:port - incarnation`."""
    host, _, port = address_of(member).rpartition(":")
    return f"Member [{host.strip('[]')}]:{port} - {incarnation_of(member)}"
