"""The rules of the first frame on a connection: which peers are accepted, and which version both ends speak."""

from __future__ import annotations

from phalanx.common.ids import MemberId, address_of, is_client, is_member, may_be_member
from phalanx.common.versions import Release, agree, no_common_version, this_release
from phalanx.wire.messages import Handshake, Hello, Refused, Welcome

MAX_CLIENT_LENGTH = 128
"""Most characters in the name of a client: each partition remembers the clients that have written to it."""
MAX_MEMBER_LENGTH = 320
"""Most characters in a member's identity: a host name has at most 253, port and incarnation about fifty."""


def release_in(hello: Hello) -> Release:
    """Return which versions the connecting side speaks."""
    return Release(hello.newest or hello.protocol, hello.protocol)


def agreed_protocol(hello: Hello) -> int:
    """Return the version that both ends speak after this Hello, the newest that both know; 0: there is none."""
    return agree(this_release(), release_in(hello)) or 0


def judge_protocol(message: Handshake) -> Hello | Refused:
    """Return the first frame if it is a `Hello` of a version that this side speaks, too, else the refusal."""
    if not isinstance(message, Hello):
        return Refused("the first message on a connection must be a Hello")
    if not agreed_protocol(message):
        return Refused(no_common_version(this_release(), release_in(message)))
    return message


def judge_hello(message: Handshake, this: MemberId, cluster: str) -> Welcome | Refused:
    """Return the accepting member's answer to the first frame."""
    message = judge_protocol(message)
    if isinstance(message, Refused):
        return message
    if message.cluster != cluster:
        return Refused(
            f"this member belongs to cluster {cluster!r}, not to {message.cluster!r}: check the cluster name "
            f"or the address"
        )
    if is_member(message.receiver) and message.receiver != this:
        return Refused(f"another incarnation of the member listens at {address_of(this)} now")
    longest = MAX_CLIENT_LENGTH if is_client(message.sender) else MAX_MEMBER_LENGTH
    if len(message.sender) > longest:
        return Refused(
            f"an identity of {len(message.sender)} characters is longer than {longest}: it is noted with writes"
        )
    if not is_client(message.sender) and not may_be_member(message.sender):
        return Refused(f"{message.sender!r} is neither a member's nor a client's identity")
    return Welcome(this, protocol=agreed_protocol(message))


def refusal_in(message: Handshake, wanted: str) -> str | None:
    """Return why the connecting side must give up after the accepting side's first frame; None: it can continue."""
    if isinstance(message, Refused):
        return message.reason
    if not isinstance(message, Welcome):
        return "the peer did not answer the greeting as a member does"
    if is_member(wanted) and message.member != wanted:
        return f"{message.member} answered instead of {wanted}"
    return None
