"""The record layer: the stream comes out as it went in, however it is chopped; whatever else was done to it is noticed."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from phalanx.common.errors import ProtocolError
from phalanx.net.authenticated_records import HEADER_BYTES, MAX_BODY_BYTES, RecordLayer, RecordSigner, RecordVerifier
from phalanx.net.secret import Secret
from phalanx.wire.messages import PROTOCOL_VERSION, Hello
from support.harness import lone_id

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
LONG = st.integers(MAX_BODY_BYTES - 1, 2 * MAX_BODY_BYTES + 1)


def chopped(stream: bytes, sizes: list[int]) -> list[bytes]:
    """The stream in pieces of these sizes, again and again."""
    pieces, at, number = [], 0, 0
    while at < len(stream):
        size = sizes[number % len(sizes)]
        pieces.append(stream[at : at + size])
        at, number = at + size, number + 1
    return pieces


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=8), st.lists(st.integers(1, 400), min_size=1))
def test_what_is_signed_comes_out_however_the_network_chops_it(sent: list[bytes], sizes: list[int]) -> None:
    signer, verifier = RecordSigner(KEY), RecordVerifier(KEY)
    stream = b"".join(map(signer.sign, sent))
    got = b""
    for piece in chopped(stream, sizes):
        missing = verifier.missing
        assert missing > 0
        data = verifier.feed(piece)
        assert not (data and len(piece) < missing)
        got += data
    assert got == b"".join(sent)
    assert verifier.missing == HEADER_BYTES


@example(MAX_BODY_BYTES, [65536])
@example(MAX_BODY_BYTES + 1, [HEADER_BYTES, 65536])
@given(LONG, st.lists(st.integers(10_000, MAX_BODY_BYTES * 2), min_size=1, max_size=10))
def test_long_data_is_cut_into_records_of_bounded_length(size: int, sizes: list[int]) -> None:
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    signer, verifier = RecordSigner(KEY), RecordVerifier(KEY)
    stream = signer.sign(data)
    assert len(stream) == len(data) + HEADER_BYTES * -(-size // MAX_BODY_BYTES)
    got = []
    for piece in chopped(stream, sizes):
        got.append(verifier.feed(piece))
        assert verifier.missing <= HEADER_BYTES + MAX_BODY_BYTES
    assert b"".join(got) == data


RECORDS = [b"put a", b"put b", b"get c"]


def signed() -> list[bytes]:
    signer = RecordSigner(KEY)
    return [signer.sign(body) for body in RECORDS]


@given(st.data())
def test_a_changed_bit_anywhere_never_comes_out(data: st.DataObject) -> None:
    stream = bytearray(b"".join(signed()))
    bit = data.draw(st.integers(0, len(stream) * 8 - 1))
    stream[bit // 8] ^= 1 << bit % 8
    verifier, got = RecordVerifier(KEY), b""
    try:
        for piece in chopped(bytes(stream), data.draw(st.lists(st.integers(1, 40), min_size=1))):
            got += verifier.feed(piece)
    except ProtocolError:
        pass
    else:
        assert bit // 8 % len(signed()[0]) < 4, "a longer record was announced, and is waited for"
    whole = bit // 8 // len(signed()[0])
    assert b"".join(RECORDS[:whole]).startswith(got)


@pytest.mark.parametrize(
    "order",
    [[1], [0, 0], [0, 2], [1, 0], [0, 1, 0], [0, 1, 1]],
    ids=["first left out", "repeated", "one left out", "exchanged", "old one repeated", "last repeated"],
)
@pytest.mark.parametrize("together", [False, True])
def test_a_record_is_taken_once_and_in_its_place(order: list[int], together: bool) -> None:
    verifier = RecordVerifier(KEY)
    records = [signed()[number] for number in order]
    right = [number for place, number in enumerate(order) if order[: place + 1] == list(range(place + 1))]
    if not together:
        assert [verifier.feed(records[number]) for number in right] == [RECORDS[number] for number in right]
        records = records[len(right) :]
    with pytest.raises(ProtocolError, match=rf"record {len(right)} of this connection does not verify"):
        verifier.feed(b"".join(records))


def test_a_record_of_another_key_does_not_verify() -> None:
    with pytest.raises(
        ProtocolError, match="record 0 of this connection does not verify: somebody between the two ends"
    ):
        RecordVerifier(OTHER_KEY).feed(signed()[0])


def test_a_record_that_is_too_long_is_refused_before_it_is_buffered() -> None:
    verifier = RecordVerifier(KEY)
    with pytest.raises(ProtocolError, match=f"a record of {MAX_BODY_BYTES + 1} bytes is announced"):
        verifier.feed((MAX_BODY_BYTES + 1).to_bytes(4, "big") + bytes(16))


def test_what_one_end_sent_does_not_verify_as_the_other_ends() -> None:
    """Reflection: each direction has a key of its own."""
    hello = Hello(PROTOCOL_VERSION, "phalanx", "client/1", "A:5701", b"n" * 32)
    one, other = Secret("a secret of this cluster").record_keys(hello, lone_id("A"), b"m" * 32, PROTOCOL_VERSION)
    connecting, accepting = RecordLayer(one, other), RecordLayer(other, one)
    record = connecting.sign(b"get")
    assert accepting.feed(record) == b"get"
    with pytest.raises(ProtocolError):
        connecting.feed(record)


def test_keys_are_of_one_connection_and_no_proof() -> None:
    secret = Secret("a secret of this cluster")
    said = [
        (Hello(PROTOCOL_VERSION, "phalanx", "client/1", "A:5701", b"n" * 32), b"m" * 32),
        (Hello(PROTOCOL_VERSION, "phalanx", "client/1", "A:5701", b"o" * 32), b"m" * 32),
        (Hello(PROTOCOL_VERSION, "phalanx", "client/1", "A:5701", b"n" * 32), b"o" * 32),
        (Hello(PROTOCOL_VERSION, "phalanx", "client/2", "A:5701", b"n" * 32), b"m" * 32),
    ]
    keys = [key for hello, nonce in said for key in secret.record_keys(hello, lone_id("A"), nonce, PROTOCOL_VERSION)]
    proofs = [
        secret.prove(end, *said[0][:1], lone_id("A"), said[0][1], PROTOCOL_VERSION)
        for end in ("connecting", "accepting")
    ]
    assert len({*keys, *proofs}) == len(keys) + len(proofs)
