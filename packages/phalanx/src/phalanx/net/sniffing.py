"""Tell by the first bytes of a connection which protocol its peer speaks.

A native peer begins with the length of its greeting, at most 16 KiB in big-endian order: its first byte is 0. A client of Hazelcast
sends `CP2`, one of another version of its protocol other bytes of this kind. A client of Redis sends an array (`*`), or a line that begins with a letter. HTTP and TLS come here by mistake only.
"""

from __future__ import annotations

import enum
from typing import Final


class Spoken(enum.Enum):
    """What a peer speaks."""

    NATIVE = "native"
    HAZELCAST = "hazelcast"
    OTHER_HAZELCAST = "another version of Hazelcast's protocol"
    REDIS = "redis"
    HTTP = "http"
    TLS = "tls"
    UNKNOWN = "unknown"


HAZELCAST_MARK: Final = b"CP2"
OTHER_HAZELCAST_MARKS: Final = (b"CP1", b"CP3", b"CB2", b"HZC")
"""An older and a newer client protocol, that of clients of Hazelcast 3, and that of its members."""
TLS_MARK: Final = b"\x16\x03"
HTTP_VERBS: Final = (
    b"GET /",
    b"HEAD /",
    b"POST /",
    b"PUT /",
    b"PATCH /",
    b"DELETE /",
    b"TRACE /",
    b"OPTIONS ",
    b"CONNECT ",
    b"PRI * H",
)
"""How the first line of a request begins. (An inline command of Redis on a key that begins with a slash is taken for one, too:
its clients send arrays, and people can quote the key.)"""
BINARY_MARKS: Final = (HAZELCAST_MARK, *OTHER_HAZELCAST_MARKS, TLS_MARK)
MARKS: Final = (*BINARY_MARKS, *HTTP_VERBS)


def spoken_in(first: bytes) -> Spoken | None:
    """Return what a peer speaks whose first bytes these are; None: more bytes are needed to tell."""
    if not first:
        return None
    if first[0] == 0:
        return Spoken.NATIVE
    if first.startswith(HAZELCAST_MARK):
        return Spoken.HAZELCAST
    if first.startswith(OTHER_HAZELCAST_MARKS):
        return Spoken.OTHER_HAZELCAST
    if first.startswith(TLS_MARK):
        return Spoken.TLS
    upper = first[:8].upper()
    if upper.startswith(HTTP_VERBS):
        return Spoken.HTTP
    if any(mark.startswith(first if mark in BINARY_MARKS else upper) for mark in MARKS):
        return None
    if first[:1] == b"*" or first[:1].isalpha():
        return Spoken.REDIS
    return Spoken.UNKNOWN


def refusal_of(spoken: Spoken, served: tuple[str, ...]) -> tuple[str, bytes]:
    """Return why a peer is refused, in one line for the log, and what it is sent, in its own protocol."""
    at_all = (
        f"this member serves {' and '.join(served)}"
        if served
        else "this member serves no other protocol (setting serve)"
    )
    if spoken is Spoken.HTTP:
        text = "it speaks HTTP, and this is the port of the cluster: HTTP has a port of its own (setting http_port)"
        body = f"{text}\n".encode()
        head = (
            b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        )
        return text, head % len(body) + body
    if spoken is Spoken.TLS:
        return (
            "it begins with TLS, which this port does not speak: connect without TLS",
            b"\x15\x03\x01\x00\x02\x02\x28",
        )
    if spoken is Spoken.REDIS:
        text = f"it speaks the protocol of Redis, and {at_all}: start the member with --serve redis"
        return text, f"-ERR {text}\r\n".encode()
    if spoken is Spoken.OTHER_HAZELCAST:
        return (
            "it speaks another version of Hazelcast's protocol than that of clients of Hazelcast 4 and 5 (CP2): use one of these, and "
            "name members of Phalanx to them, not to members of Hazelcast",
            b"",
        )
    if spoken is Spoken.HAZELCAST:
        return (
            f"it speaks the protocol of Hazelcast's clients, and {at_all}: start the member with --serve hazelcast",
            b"",
        )
    return "its first bytes belong to no protocol that this member knows", b""
