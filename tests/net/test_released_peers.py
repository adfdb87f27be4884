"""Greetings between this tree and the last release (PX-42): both ends agree on a version, with and without a secret."""

from typing import Any

import msgspec
import pytest

from phalanx.common.ids import Address
from phalanx.net.greeting import Accepting, Connecting
from phalanx.net.secret import Secret
from phalanx.wire.codec import handshake_decoder
from phalanx.wire.handshake import judge_protocol
from phalanx.wire.messages import OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION, Challenge, Hello, Proof, Refused, Welcome
from support import released
from support.harness import lone_id

THIS = lone_id("A")
TEXT = "a secret of this cluster"


def greet(one: Any, other: Any, decode_one: Any, decode_other: Any) -> str | None:
    """Carry the frames of both as bytes; why they do not talk, None if they do."""
    said = one.begin(Address("10.0.0.1:5701"))
    while True:
        answer = one.answer(
            decode_one(msgspec.msgpack.encode(other.answer(decode_other(msgspec.msgpack.encode(said)))))
        )
        if type(answer).__name__ != "Proof":
            reason: str | None = answer
            return reason
        said = answer


@pytest.mark.rows("PX-42")
@pytest.mark.parametrize("has_secret", [False, True])
@pytest.mark.parametrize("ours", ["connects", "accepts", "both"])
def test_both_releases_greet_each_other(ours: str, has_secret: bool) -> None:
    old = released.release()
    theirs = handshake_decoder.decode, old.codec.handshake_decoder.decode
    mine = Secret(TEXT) if has_secret else None
    its = old.secret.Secret(TEXT) if has_secret else None
    new_one = Connecting(Address("A:5701"), "phalanx", "client/1", mine)
    old_one = old.greeting.Connecting(Address("A:5701"), "phalanx", "client/1", its)
    new_other = Accepting(THIS, "phalanx", mine)
    old_other = old.greeting.Accepting(THIS, "phalanx", its)
    one: Any = old_one if ours == "accepts" else new_one
    other: Any = old_other if ours == "connects" else new_other
    assert greet(one, other, theirs[one is old_one], theirs[other is old_other]) is None
    assert (one.member, other.hello.sender) == (THIS, "client/1")
    assert (one.records is not None) == (other.records is not None) == has_secret
    if has_secret:
        for end, peer in ((one, other), (other, one)):
            sign = end.records.seal if end is old_one or end is old_other else end.records.sign
            assert bytes(peer.records.feed(sign(b"bytes"))) == b"bytes"
    if one is new_one:
        assert new_one.protocol == (PROTOCOL_VERSION if ours == "both" else released.PROTOCOL)


@pytest.mark.rows("PX-42")
def test_a_peer_with_no_version_in_common_is_told_so_on_both_sides() -> None:
    later = Hello(PROTOCOL_VERSION + 1, "phalanx", "client/1", "A:5701", newest=PROTOCOL_VERSION + 2)
    refused = judge_protocol(later)
    text = (
        f"this member speaks protocols {OLDEST_PROTOCOL_VERSION} to {PROTOCOL_VERSION}, the peer protocols "
        f"{PROTOCOL_VERSION + 1} to {PROTOCOL_VERSION + 2}: upgrade the older side"
    )
    assert refused == Refused(text)
    one = Connecting(Address("A:5701"), "phalanx", "client/1", None)
    assert one.answer(refused) == text


@pytest.mark.rows("PX-42")
@pytest.mark.parametrize("protocol", [0, OLDEST_PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1])
def test_a_version_that_was_not_offered_is_not_spoken(protocol: int) -> None:
    one = Connecting(Address("A:5701"), "phalanx", "client/1", None)
    one.begin(Address("10.0.0.1:5701"))
    assert "has not offered" in str(one.answer(Welcome(THIS, protocol=protocol)))
    assert one.member is None


@pytest.mark.parametrize("field", ["newest", "protocol"])
def test_the_proofs_cover_what_was_offered_and_chosen(field: str) -> None:
    """Somebody in between leaves out the newer version on one way only: the ends notice it."""
    one = Connecting(Address("A:5701"), "phalanx", "client/1", Secret(TEXT))
    other = Accepting(THIS, "phalanx", Secret(TEXT))
    hello = one.begin(Address("10.0.0.1:5701"))
    challenge = other.answer(msgspec.structs.replace(hello, newest=0) if field == "newest" else hello)
    assert isinstance(challenge, Challenge)
    changed = PROTOCOL_VERSION if field == "newest" else 0
    proof = one.answer(msgspec.structs.replace(challenge, protocol=changed))
    assert isinstance(proof, Proof)
    assert isinstance(other.answer(proof), Refused)
