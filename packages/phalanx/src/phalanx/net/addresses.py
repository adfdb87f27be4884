"""Normalise addresses, so that different texts for the same address become equal."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from typing import Any

from phalanx.common.ids import Address

_MOST_DIGITS = 5
"""Of a port. Python refuses to read a number of thousands of digits, and peers send addresses."""


def normalise(address: str) -> Address:
    """Return the normal form of `host:port`: IPv6 compressed, in brackets and without a zone, IPv4 in IPv6 as IPv4,
    names in lower case.

    Names are not looked up. A text that is no address is returned unchanged, and equals no address.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or len(port) > _MOST_DIGITS:
        return Address(address)
    return _form(host.strip("[]"), int(port))


def socket_address(place: Sequence[Any] | None) -> Address:
    """Return the normal form of a result of `getsockname` or `getpeername`; empty if the socket is closed."""
    return _form(str(place[0]), int(place[1])) if place else Address("")


def is_wildcard(host: str) -> bool:
    """Return whether the host stands for all addresses of a machine: others cannot connect to it."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def is_of_this_machine(host: str) -> bool:
    """Return whether the host is an address of this machine. False for names: they are not looked up."""
    try:
        ip = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    if ip.is_loopback or ip.is_unspecified:
        return ip.is_loopback
    family = socket.AF_INET6 if ip.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(ip), 0))  # only an address of this machine can be bound
    except OSError:
        return False
    return True


def _form(host: str, port: int) -> Address:
    host = host.partition("%")[0]  # the zone, which names an interface, differs from host to host
    try:
        ip: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(host)
    except ValueError:
        return Address(f"{host.lower().removesuffix('.')}:{port}")
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None:
            return Address(f"[{ip.compressed}]:{port}")
        ip = ip.ipv4_mapped
    return Address(f"{ip}:{port}")


def is_loopback(host: str) -> bool:
    """Return whether a host is the loopback interface of this machine; names but localhost are not looked up."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
