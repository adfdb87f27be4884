"""Who may talk: both ends of a connection have the same secret, or neither has one."""

import os
from pathlib import Path

import pytest
from msgspec import msgpack, structs

from phalanx.common.errors import UsageError
from phalanx.common.ids import Address, MemberId
from phalanx.net import greeting
from phalanx.net.greeting import Accepting, Connecting
from phalanx.net.secret import SECRET_FILE_VARIABLE, Secret, find_secret
from phalanx.runtime.connections.host_counter import MAX_HOSTS, TELL_AGAIN_S, HostCounter
from phalanx.runtime.settings.config import Config
from phalanx.wire.codec import handshake_decoder
from phalanx.wire.messages import (
    OLDEST_PROTOCOL_VERSION,
    PROTOCOL_VERSION,
    Challenge,
    Handshake,
    Hello,
    Proof,
    Refused,
    Welcome,
)
from support.harness import lone_id

THIS = lone_id("A")
OURS, OTHER = Secret("a secret of this cluster"), Secret("the secret of another one")


def connecting(
    secret: Secret | None = OURS, to: str = "A:5701", cluster: str = "phalanx", sender: str = "client/1",
    reached: str = "10.0.0.1:5701",
) -> Connecting:  # fmt: skip
    one = Connecting(Address(to), cluster, sender, secret)
    one.begin(Address(reached))
    return one


def accepting(secret: Secret | None = OURS, this: MemberId = THIS, *own: str) -> Accepting:
    return Accepting(this, "phalanx", secret, [Address(address) for address in own])


def greet(one: Connecting, other: Accepting) -> str | None:
    """Carry frames between both; why they do not talk, None if they do."""
    said: Handshake = one.hello
    while True:
        heard = other.answer(said)
        answer = one.answer(heard)
        if not isinstance(answer, Proof):
            return answer
        said = answer


@pytest.mark.parametrize("secret", [None, OURS])
@pytest.mark.parametrize("to", ["A:5701", "A:5701/A1", "localhost:5701"])
def test_who_has_the_same_secret_talks(secret: Secret | None, to: str) -> None:
    one, other = connecting(secret, to), accepting(secret, THIS, "10.0.0.1:5701")
    assert greet(one, other) is None
    assert (one.member, other.hello) == (THIS, one.hello)
    assert not other.is_distrusted


@pytest.mark.parametrize(
    ("its", "ours", "reason"),
    [
        (None, OURS, greeting.ONLY_ACCEPTING_HAS_ONE),
        (OURS, None, greeting.ONLY_CONNECTING_HAS_ONE),
        (OTHER, OURS, greeting.ANOTHER_SECRET),
    ],
)
def test_who_has_not_is_told_what_to_do(its: Secret | None, ours: Secret | None, reason: str) -> None:
    one, other = connecting(its), accepting(ours)
    assert greet(one, other) == reason
    assert "--secret-file" in reason
    assert other.is_distrusted
    assert (one.member, other.hello) == (None, None)


def test_a_stranger_learns_neither_the_clusters_name_nor_whom_it_reached() -> None:
    """Name, address and incarnation are judged after the proof only."""
    for cluster, to, told in (
        ("other", "A:5701", "belongs to cluster"),
        ("phalanx", "A:5701/gone", "another incarnation"),
        ("phalanx", "B:5701", "which is not known under that address"),
    ):
        for secret, reason in ((OTHER, greeting.ANOTHER_SECRET), (OURS, told)):
            one, other = connecting(secret, to, cluster), accepting()
            challenge = other.answer(one.hello)
            assert isinstance(challenge, Challenge)
            proof = secret.prove("connecting", one.hello, THIS, challenge.nonce, challenge.protocol)
            refused = other.answer(Proof(proof))
            assert isinstance(refused, Refused)
            assert reason in refused.reason
            assert other.hello is None


def test_a_member_without_the_secret_does_not_pass_for_one() -> None:
    one = connecting()
    assert one.answer(Welcome(THIS, protocol=PROTOCOL_VERSION)) == greeting.PEER_NO_SECRET
    one = connecting()
    assert isinstance(one.answer(Challenge(THIS, b"n" * 32)), Proof)
    assert one.answer(Welcome(THIS, b"", PROTOCOL_VERSION)) == greeting.PEER_ANOTHER_SECRET
    assert one.member is None


def test_its_own_proof_sent_back_proves_nothing() -> None:
    """Reflection: the end is part of what is proved."""
    one = connecting()
    proof = one.answer(Challenge(THIS, one.hello.nonce))
    assert isinstance(proof, Proof)
    assert one.answer(Welcome(THIS, proof.proof, PROTOCOL_VERSION)) == greeting.PEER_ANOTHER_SECRET


def test_what_was_said_on_one_connection_is_of_no_use_on_another() -> None:
    """Replay: both ends draw anew."""
    one, other = connecting(), accepting()
    challenge = other.answer(one.hello)
    assert isinstance(challenge, Challenge)
    proof = one.answer(challenge)
    assert isinstance(proof, Proof)
    welcome = other.answer(proof)
    assert isinstance(welcome, Welcome)

    again = accepting()
    assert isinstance(again.answer(one.hello), Challenge)
    assert again.answer(proof) == Refused(greeting.ANOTHER_SECRET)

    late = connecting()
    assert late.hello.nonce != one.hello.nonce
    late.answer(challenge)
    assert late.answer(welcome) == greeting.PEER_ANOTHER_SECRET


def test_a_proof_is_for_one_pair_and_one_cluster() -> None:
    """Whatever differs in what was said, the proof does not fit."""
    said = Hello(PROTOCOL_VERSION, "phalanx", "client/1", "A:5701", b"n" * 32)
    proof = OURS.prove("connecting", said, THIS, b"m" * 32, PROTOCOL_VERSION)
    assert OURS.is_proved(proof, "connecting", said, THIS, b"m" * 32, PROTOCOL_VERSION)
    others = [
        Hello(PROTOCOL_VERSION + 1, "phalanx", "client/1", "A:5701", b"n" * 32),
        Hello(PROTOCOL_VERSION, "phalan", "xclient/1", "A:5701", b"n" * 32),
        Hello(PROTOCOL_VERSION, "phalanx", "client/2", "A:5701", b"n" * 32),
        Hello(PROTOCOL_VERSION, "phalanx", "client/1", "B:5701", b"n" * 32),
        Hello(PROTOCOL_VERSION, "phalanx", "client/1", "A:5701", b"o" * 32),
        Hello(PROTOCOL_VERSION, "phalanx", "client/1", "A:5701", b"n" * 32, "10.0.0.1:5701"),
    ]
    assert not any(OURS.is_proved(proof, "connecting", other, THIS, b"m" * 32, PROTOCOL_VERSION) for other in others)
    assert not OURS.is_proved(proof, "connecting", said, THIS, b"m" * 32, PROTOCOL_VERSION - 1)
    assert not OURS.is_proved(proof, "accepting", said, THIS, b"m" * 32, PROTOCOL_VERSION)
    assert not OURS.is_proved(proof, "connecting", said, lone_id("B"), b"m" * 32, PROTOCOL_VERSION)
    assert not OURS.is_proved(proof, "connecting", said, THIS, b"o" * 32, PROTOCOL_VERSION)


def test_who_was_welcomed_as_another_is_refused() -> None:
    """The member that proved itself is the one that is named in the end."""
    one, other = connecting(), accepting()
    proof = one.answer(other.answer(one.hello))
    assert isinstance(proof, Proof)
    welcome = other.answer(proof)
    assert isinstance(welcome, Welcome)
    assert one.answer(Welcome(lone_id("B"), welcome.proof, welcome.protocol)) == greeting.PEER_ANOTHER_SECRET


@pytest.mark.parametrize("second", [Welcome(THIS), Hello(PROTOCOL_VERSION, "phalanx", "client/1", "A:5701", b"n")])
def test_a_challenge_is_answered_with_a_proof_and_nothing_else(second: Handshake) -> None:
    one, other = connecting(), accepting()
    other.answer(one.hello)
    assert isinstance(other.answer(second), Refused)
    assert other.hello is None


def test_a_second_challenge_is_not_answered() -> None:
    one = connecting()
    one.answer(Challenge(THIS, b"n" * 32))
    assert (
        one.answer(Challenge(THIS, b"m" * 32, PROTOCOL_VERSION))
        == "the peer did not answer the greeting as a member does"
    )


# --- passed on to somebody else -------------------------------------------------------------------------------------

OTHERS = lone_id("B")


def relay(one: Connecting, other: Accepting, named: MemberId | None = None) -> str | None:
    """As `greet`, by somebody in between who may put another name into the challenge."""
    challenge = other.answer(one.hello)
    assert isinstance(challenge, Challenge)
    said = one.answer(Challenge(named or challenge.member, challenge.nonce, challenge.protocol))
    if not isinstance(said, Proof):
        assert other.hello is None
        return said
    answer = one.answer(other.answer(said))
    assert not isinstance(answer, Proof)
    return answer


@pytest.mark.parametrize("sender", ["client/1", "M:5701/M1"])
def test_nothing_is_proved_to_another_member_than_the_one_that_was_dialled(sender: str) -> None:
    one = connecting(to=OTHERS, sender=sender)
    assert (
        relay(one, accepting())
        == "B:5701 was dialled, and 'A:5701' answered: the program that listens there passes connections on"
    )
    assert one.is_misled


def test_a_proof_for_the_one_that_was_dialled_is_of_no_use_to_another() -> None:
    """Whoever passes it on may put that name into the challenge."""
    other = accepting()
    assert relay(connecting(to=OTHERS), other, named=OTHERS) == greeting.ANOTHER_SECRET
    assert other.is_distrusted


@pytest.mark.parametrize("sender", ["client/1", "M:5701/M1"])
@pytest.mark.parametrize(
    ("dialled", "reached"),
    [
        ("B:5701", "10.0.0.2:5701"),
        ("A:5702", "10.0.0.1:5702"),  # another one on this host
        ("10.0.0.2:5701", "10.0.0.2:5701"),
        ("[2001:db8::2]:5701", "[2001:db8::2]:5701"),
        ("B:5701", ""),
        ("nonsense", ""),
    ],
)
def test_a_greeting_for_another_address_is_refused(sender: str, dialled: str, reached: str) -> None:
    one = connecting(to=dialled, sender=sender, reached=reached)
    other = accepting(OURS, THIS, "10.0.0.1:5701", "[2001:db8::1]:5701")
    reason = relay(one, other)
    assert reason is not None
    assert reason.startswith(dialled)
    assert "came to A:5701" in reason
    assert f"--also-known-as {dialled}" in reason
    assert (one.member, other.hello, other.records) == (None, None, None)
    assert one.is_misled
    assert other.is_distrusted


@pytest.mark.parametrize(
    ("dialled", "reached"),
    [
        ("A:5701", "10.9.9.9:5701"),  # the name by which the others know it, wherever that leads from there
        ("node-1.example:5701", "10.0.0.1:5701"),
        ("Service.example:80", "10.3.3.3:80"),
        ("[::ffff:10.0.0.1]:5701", "10.0.0.1:5701"),
        ("[2001:db8:0::1]:5701", "[2001:db8::1]:5701"),
    ],
)
def test_whoever_dialled_an_address_of_the_member_is_welcome(dialled: str, reached: str) -> None:
    one = connecting(to=dialled, reached=reached)
    other = accepting(OURS, THIS, "10.0.0.1:5701", "[2001:db8::1]:5701", "service.example:80")
    assert relay(one, other) is None
    assert not one.is_misled
    assert one.records is not None
    assert other.records is not None
    assert other.records.feed(one.records.sign(b"get")) == b"get"
    assert one.records.feed(other.records.sign(b"got")) == b"got"


def test_what_was_found_for_a_name_is_told_and_cannot_be_changed_on_the_way() -> None:
    one = connecting(to="seed.example:5701", reached="10.0.0.2:5701")
    assert "seed.example:5701 (found at 10.0.0.2:5701) was dialled" in str(relay(one, accepting()))
    one, other = connecting(to="seed.example:5701", reached="10.0.0.2:5701"), accepting(OURS, THIS, "10.0.0.1:5701")
    challenge = other.answer(structs.replace(one.hello, reached="10.0.0.1:5701"))
    proof = one.answer(challenge)
    assert isinstance(proof, Proof)
    assert other.answer(proof) == Refused(greeting.ANOTHER_SECRET)


def test_nobody_talks_with_itself() -> None:
    one = connecting(to="B:5701", sender=THIS)
    assert relay(one, accepting()) == "B:5701 leads back to this member itself"
    assert one.is_itself
    other = accepting()
    hello = connecting(to="A:5701", sender=THIS).hello
    challenge = other.answer(hello)
    assert isinstance(challenge, Challenge)
    answer = other.answer(Proof(OURS.prove("connecting", hello, THIS, challenge.nonce, challenge.protocol)))
    assert answer == Refused("somebody passed this member's own greeting on to it")


def test_another_incarnation_at_the_dialled_address_is_no_stranger() -> None:
    one = connecting(to="A:5701/gone")
    assert relay(one, accepting()) == "another incarnation of the member listens at A:5701 now"
    assert not one.is_misled


def test_what_a_stranger_calls_itself_cannot_forge_a_line_of_a_log() -> None:
    one = connecting(to=OTHERS)
    reason = one.answer(Challenge(MemberId("\x1b[2J\n" + "x" * 10_000 + "/i"), b"n" * 32))
    assert isinstance(reason, str)
    assert reason.isprintable()
    assert len(reason) < 2 * greeting.MAX_SHOWN
    refusal = connecting().answer(Refused("go away\n12:00:00 INFO all is well\x1b[2J" + "x" * 10_000))
    assert isinstance(refusal, str)
    assert refusal.startswith("go away?12:00:00")
    assert refusal.isprintable()
    assert len(refusal) == greeting.MAX_SHOWN


def test_a_socket_that_knows_no_address_is_not_the_one_that_was_meant() -> None:
    assert "was dialled" in str(relay(connecting(to="B:5701", reached=""), accepting(OURS, THIS, "")))


def test_an_older_version_is_told_which_side_to_upgrade() -> None:
    older = handshake_decoder.decode(
        msgpack.encode([1, OLDEST_PROTOCOL_VERSION - 1, "phalanx", "client/1", "A:5701", b"n" * 32])
    )
    assert accepting().answer(older) == Refused(
        f"this member speaks protocols {OLDEST_PROTOCOL_VERSION} to {PROTOCOL_VERSION}, the peer protocol "
        f"{OLDEST_PROTOCOL_VERSION - 1}: upgrade the older side"
    )


def test_without_a_secret_nobody_asks_under_which_address_a_member_was_dialled() -> None:
    one, other = connecting(None, "B:5701"), accepting(None)
    assert greet(one, other) is None
    assert (one.records, other.records) == (None, None)


# --- where the secret comes from ------------------------------------------------------------------------------------


def test_the_secret_comes_from_the_setting_the_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Hello(PROTOCOL_VERSION, "phalanx", "client/1", "A:5701", b"n")
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("one secret for the cluster\n")
    one.chmod(0o600)
    other.write_text("another secret for it\n")
    other.chmod(0o600)

    def proof(secret: Secret | None) -> bytes:
        assert secret is not None
        return secret.prove("connecting", said, THIS, b"m", PROTOCOL_VERSION)

    expected = proof(Secret("one secret for the cluster"))
    monkeypatch.delenv(SECRET_FILE_VARIABLE, raising=False)
    assert find_secret(None, None) is None
    assert proof(find_secret(None, one)) == expected
    monkeypatch.setenv(SECRET_FILE_VARIABLE, str(other))
    assert proof(find_secret(None, str(one))) == proof(find_secret("one secret for the cluster", None)) == expected
    assert proof(find_secret(None, None)) == proof(Secret("another secret for it"))


def test_what_is_wrong_with_a_secret_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SECRET_FILE_VARIABLE, raising=False)
    short = tmp_path / "short"
    short.write_text("abc\n")
    short.chmod(0o600)
    with pytest.raises(
        UsageError, match=r"secret_file .*short: the cluster's secret has 3 bytes, and needs 16 to 1024"
    ):
        find_secret(None, short)
    with pytest.raises(UsageError, match=r"secret_file: cannot read nowhere: No such file"):
        find_secret(None, "nowhere")
    with pytest.raises(UsageError, match="leave one of them out"):
        find_secret("a secret of this cluster", short)
    monkeypatch.setenv(SECRET_FILE_VARIABLE, "nowhere")
    with pytest.raises(UsageError, match=r"PHALANX_SECRET_FILE: cannot read nowhere"):
        find_secret(None, None)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o620])
def test_a_file_that_others_can_open_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    monkeypatch.delenv(SECRET_FILE_VARIABLE, raising=False)
    path = tmp_path / "secret"
    path.write_text("a secret of this cluster")
    path.chmod(mode)
    with pytest.raises(
        UsageError, match=rf"secret_file .*secret: it is open to other users \(mode {mode:o}\).*chmod 600"
    ):
        find_secret(None, path)
    monkeypatch.setenv(SECRET_FILE_VARIABLE, str(path))
    with pytest.raises(UsageError, match=r"PHALANX_SECRET_FILE .*open to other users"):
        find_secret(None, None)
    monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    assert find_secret(None, path) is not None, "it is not this user's to change"


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_of_this_user_alone_is_read(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    path.write_text("a secret of this cluster")
    path.chmod(mode)
    assert find_secret(None, path) is not None


def test_it_shows_in_no_repr() -> None:
    text = "a secret of this cluster"
    assert text not in repr(Secret(text)) + repr(Config(secret=text)) + repr(accepting()) + repr(connecting())
    assert "secret='(not shown)'" in repr(Config(secret=text))


def test_beyond_loopback_it_takes_a_secret_and_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SECRET_FILE_VARIABLE, raising=False)
    for host in ("192.0.2.1", "0.0.0.0", "::", "node-1.example"):
        with pytest.raises(UsageError, match="not a loopback address, and without a secret"):
            Config(host=host)
    file = str(tmp_path / "secret")  # it is read when the member starts
    assert Config(host="192.0.2.1", secret_file=file).address(5701) == "192.0.2.1:5701"
    with pytest.raises(UsageError, match=r"others cannot connect to '0\.0\.0\.0': give the address"):
        Config(host="0.0.0.0", secret_file=file)
    with pytest.raises(UsageError, match="advertise: others cannot connect to '::'"):
        Config(host="::", secret_file=file, advertise="::")
    assert Config(host="0.0.0.0", secret_file=file, advertise="192.0.2.1").address(5701) == "192.0.2.1:5701"
    assert Config(host="::", secret_file=file, advertise="2001:db8::1").address(5701) == "[2001:db8::1]:5701"
    with pytest.raises(
        UsageError, match=r"would know this member as '127\.0\.0\.1'.*the seed 192\.0\.2\.1:5701 is not on"
    ):
        Config(seeds=(Address("127.0.0.1:5701"), Address("192.0.2.1:5701")), secret_file=file)
    assert (
        Config(seeds=tuple(map(Address, ("localhost:5701", "[::1]:5701", "node-1:5701"))), secret_file=file).host
        == "127.0.0.1"
    )
    monkeypatch.setenv(SECRET_FILE_VARIABLE, file)
    assert Config(host="192.0.2.1").address(5701) == "192.0.2.1:5701"


# --- what is said of those who were refused -------------------------------------------------------------------------


def test_each_host_is_told_of_now_and_then() -> None:
    hosts = HostCounter()
    assert [hosts.count("a", now) for now in (0.0, 1.0, 2.0)] == [1, 0, 0]
    assert hosts.count("b", 2.0) == 1
    assert hosts.count("a", TELL_AGAIN_S) == 3
    assert hosts.total == 5


def test_many_hosts_take_no_more_memory() -> None:
    hosts = HostCounter()
    for number in range(MAX_HOSTS + 1):
        hosts.count(str(number), 0.0)
    assert hosts.count("1", 1.0) == 0
    assert hosts.count("0", 1.0) == 1  # the oldest was forgotten
