"""The greeting: the first frames of a connection, at both ends. It checks the identities, that both ends have the same
secret or both none, and that the accepting member is the one that was dialled.

    connecting                      accepting
    Hello (nonce, whom)     ->
                            <-      Challenge (who, nonce)   only with a secret
    Proof                   ->
                            <-      Welcome (proof), or Refused (why, proof)

Without a secret, Hello is answered by Welcome or Refused, and frames follow. With a secret, records follow
(`net/authenticated_records.py`). Before that nothing else is read, no frame can be longer than `MAX_GREETING_BYTES`, and
the greeting takes `GREETING_TIMEOUT_S` at most. A peer without the secret gets an error that says what to do, but not
whether its cluster name is right or it reached the right member. A refusal is final only with a proof: anybody may
listen at the address of a member, and refuse.

**Forwarded greetings.** The proofs alone do not prevent this attack:

1. C was a member at c:5701, and has crashed. E, who has no secret, listens there now.
2. A, the master, dials c:5701, to see whether another side of the cluster is there. It says Hello, for c:5701, to E.
3. E connects to B, forwards A's Hello to B, and B's Challenge to A.
4. A answers with its Proof. E forwards it to B, and B's Welcome to A. All proofs are valid.
5. E drops A and keeps its connection to B, where it passes for A: the master. (Or for a client, if A is a client.)

Four rules prevent it; each covers cases that the others do not:

* **A proves nothing to another member than the one that it dialled.** A Challenge is not authenticated, so E can name
  any member in it. But a Proof is valid only for the member that the Challenge names. If E names C, B cannot use the
  Proof. If E names B, A sends none, because it dialled the incarnation C.
* **B accepts no Hello for another member.** If A knows only an address, as in step 2, it cannot tell which member has
  it: a member can be reached at more addresses than the one by which the others know it. So A sends the Proof, which
  covers the address that A dialled and the numeric address that its socket is connected to. B accepts if one of them is
  its own: the one by which the others know it, the one at which it listens, the one at which this connection arrived,
  or one of `also_known_as`. c:5701 is not one of them. B checks this after the proof: then the addresses certainly come
  from A, and a peer without the secret learns nothing and writes nothing into B's log. A gets a Welcome only from a
  member that A's dialled address belongs to.
* **No member talks with itself.** If E forwards A's greeting back to A, the Challenge names A, which does not answer
  it; and A as the accepting end refuses a Hello from A.
* **E does not have the keys of the records.** Some addresses belong to more than one machine: loopback, the inner
  network of a container host, a name in front of several members. If E listens at such an address on one machine and
  can connect to the other, its forwarded Hello is accepted. Then E can do what any router can: read, and break the
  connection. Whatever it alters, adds, leaves out or repeats does not verify, so in step 5 B executes nothing that E
  sends.

**Connections that a member passes on** (`Hello.onward`). A client whose way to one member is cut greets another one, which connects
to the first and from then on passes on bytes in both directions (`runtime/connections/passed_on.py`). The client then greets the first as
if it had dialled it. So both have proved the secret to each other, and the records are theirs: the member between them can do what any
router can. It passes on to members of its list alone.

**Versions.** Both ends speak the newest version of the protocol that both know (`wire/handshake.py`). The proofs cover what was
offered and chosen, so who forwards a greeting cannot make two ends speak an older one.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from phalanx.common.ids import Address, MemberId, Target, address_of, is_member
from phalanx.net.addresses import normalise
from phalanx.net.authenticated_records import RecordLayer
from phalanx.net.secret import ACCEPTING, CONNECTING, SECRET_FILE_VARIABLE, Secret, draw_nonce
from phalanx.wire.handshake import agreed_protocol, judge_hello, judge_protocol, refusal_in, release_in
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

MAX_GREETING_BYTES = 16 * 1024
GREETING_TIMEOUT_S = 5.0
"""The time limit for opening a connection and the greeting together."""

MAX_SHOWN = 1000
"""The most characters that are shown of a text from a peer."""

HOW = f"(setting secret_file, option --secret-file, or the variable {SECRET_FILE_VARIABLE})"
ONLY_ACCEPTING_HAS_ONE = (
    f"the cluster has a secret, and the connecting side gave none: give it the cluster's secret file {HOW}"
)
ONLY_CONNECTING_HAS_ONE = (
    f"the member has no secret, and the connecting side has one: start the member with the cluster's secret file {HOW}, or connect "
    f"without one"
)
ANOTHER_SECRET = f"the connecting side has another secret than the cluster: give both the same secret file {HOW}"
PEER_ANOTHER_SECRET = (
    f"the member that answered has another secret than this side: give both the same secret file {HOW}"
)
PEER_NO_SECRET = (
    f"the member that answered did not show that it has the cluster's secret: give it the secret file {HOW}"
)


class Accepting:
    """The greeting at the accepting end."""

    def __init__(
        self, this: MemberId, cluster: str, secret: Secret | None, own_addresses: Collection[Address] = ()
    ) -> None:
        """`own_addresses`: further normalised addresses under which peers can dial this member."""
        self._this, self._cluster, self._secret = this, cluster, secret
        self._own_addresses = {normalise(address_of(this)), *own_addresses}
        self._asked: Hello | None = None
        """The peer's Hello, for which it was asked for a proof; None: it was not asked."""
        self._nonce = b""
        """The nonce of the Challenge."""
        self.hello: Hello | None = None
        """The peer's Hello, once the peer is accepted."""
        self.is_distrusted = False
        """Whether the peer was refused because of the secret, or because its greeting was for another member."""
        self.records: RecordLayer | None = None
        """Protects the bytes after the greeting, once the peer is accepted; None: there is no secret."""

    def answer(self, message: Handshake) -> Challenge | Welcome | Refused:
        """Return the answer to the peer's next frame. The greeting is over unless the answer is a `Challenge`."""
        hello, secret = self._asked, self._secret
        if hello is None or secret is None:
            return self._answer_first(message)
        protocol = agreed_protocol(hello)
        if not isinstance(message, Proof):
            return self._distrust("the peer did not answer the challenge")
        if not secret.is_proved(message.proof, CONNECTING, hello, self._this, self._nonce, protocol):
            return self._distrust(ANOTHER_SECRET)
        if not self._is_meant(hello):
            self.is_distrusted = True
            return self.refuse(_not_meant(hello, self._this))
        if hello.sender == self._this:
            return self._distrust("somebody passed this member's own greeting on to it")
        judgement = self._judge(hello)
        if isinstance(judgement, Refused):
            return self.refuse(judgement.reason)
        from_peer, to_peer = secret.record_keys(hello, self._this, self._nonce, protocol)
        self.records = RecordLayer(to_peer, from_peer)
        proof = secret.prove(ACCEPTING, hello, self._this, self._nonce, protocol)
        return Welcome(self._this, proof, protocol)

    def refuse(self, reason: str) -> Refused:
        """Return a refusal for a peer that has proved the secret, if there is one. It carries a proof, too."""
        hello, secret = self._asked, self._secret
        if hello is None or secret is None:
            return Refused(reason)
        proof = secret.prove_refusal(reason, hello, self._this, self._nonce, agreed_protocol(hello))
        return Refused(reason, proof)

    def _is_meant(self, hello: Hello) -> bool:
        """Return whether the peer dialled an address of this member: the given one, or what it resolved to."""
        dialled, reached = normalise(address_of(MemberId(hello.receiver))), normalise(hello.reached)
        return dialled in self._own_addresses or (reached != "" and reached in self._own_addresses)

    def _answer_first(self, message: Handshake) -> Challenge | Welcome | Refused:
        hello = judge_protocol(message)
        if isinstance(hello, Refused):
            return hello
        if self._secret is None:
            return self._distrust(ONLY_CONNECTING_HAS_ONE) if hello.nonce else self._judge(hello)
        if not hello.nonce:
            return self._distrust(ONLY_ACCEPTING_HAS_ONE)
        self._asked, self._nonce = hello, draw_nonce()
        return Challenge(self._this, self._nonce, agreed_protocol(hello))

    def _judge(self, hello: Hello) -> Welcome | Refused:
        judgement = judge_hello(hello, self._this, self._cluster)
        if isinstance(judgement, Welcome):
            self.hello = hello
        return judgement

    def _distrust(self, reason: str) -> Refused:
        self.is_distrusted = True
        return Refused(reason)


def _not_meant(hello: Hello, this: MemberId) -> str:
    """Return why a proved greeting for another address is refused, for the connecting side and for operators."""
    dialled = address_of(MemberId(hello.receiver))
    found = f" (found at {hello.reached})" if hello.reached not in ("", normalise(dialled)) else ""
    return (
        f"{dialled}{found} was dialled, and the connection came to {address_of(this)}, which is not known under that address: "
        f"the program that listens there passes connections on. If this is intended (a mapped port of a container, a virtual "
        f"address, a tunnel), start {address_of(this)} with --also-known-as {dialled} (setting also_known_as)"
    )


class Connecting:
    """The greeting at the connecting end. It begins with `begin`, when the socket is connected."""

    def __init__(
        self, target: Target, cluster: str, sender: str, secret: Secret | None, onward: MemberId | None = None
    ) -> None:
        """`onward`: the member to which the target is to pass on what follows."""
        self._target, self._secret = target, secret
        nonce = draw_nonce() if secret is not None else b""
        self.hello = Hello(
            OLDEST_PROTOCOL_VERSION, cluster, sender, target, nonce, newest=PROTOCOL_VERSION, onward=onward or ""
        )
        self.protocol = 0
        """The version that both ends speak, once the greeting has succeeded."""
        self._challenge: Challenge | None = None
        self.member: MemberId | None = None
        """The member that answered, once the greeting has succeeded."""
        self.records: RecordLayer | None = None
        """Protects the bytes after the greeting, once it has succeeded; None: there is no secret."""
        self.is_misled = False
        """Whether the greeting failed because a process at the dialled address seems to forward connections."""
        self.is_itself = False
        """Whether the greeting failed because the dialled address led back to the dialling member."""
        self.is_final = False
        """Whether the greeting failed by a trustworthy refusal: trying again does not help."""
        self.is_unproved = False
        """Whether the greeting failed, and the peer can be anybody: it has not proved the cluster's secret."""

    def begin(self, reached: Address) -> Hello:
        """Return the first frame: `reached` is the numeric address that the socket is connected to, normalised."""
        self.hello = msgspec.structs.replace(self.hello, reached=reached)
        return self.hello

    def answer(self, message: Handshake) -> Proof | str | None:
        """Return what follows the peer's next frame: a proof to send, why the greeting failed, or None: success."""
        if isinstance(message, Challenge) and self._challenge is None:
            return self._answer_challenge(message)
        if (refusal := refusal_in(message, self._target)) is not None:
            self.is_misled = self._challenge is not None and self._is_elsewhere(self._challenge.member)
            self._weigh(message)
            return _shown(refusal)
        if not isinstance(message, Welcome):
            self._weigh(message)
            return "the peer did not answer the greeting as a member does"
        if not release_in(self.hello).speaks(message.protocol):
            self._weigh(message)
            return f"the peer wants to speak protocol {message.protocol}, which this side has not offered"
        if self._secret is not None:
            asked = self._challenge
            if asked is None:
                self._weigh(message)
                return PEER_NO_SECRET
            said = (self.hello, asked.member, asked.nonce, asked.protocol)
            is_proved = self._secret.is_proved(message.proof, ACCEPTING, *said)
            if not is_proved or (message.member, message.protocol) != (asked.member, asked.protocol):
                self._weigh(message)
                return PEER_ANOTHER_SECRET
            self.records = RecordLayer(*self._secret.record_keys(*said))
        self.protocol = message.protocol
        self.member = message.member
        return None

    def _weigh(self, message: Handshake) -> None:
        """Decide whether a failure of the greeting, by the peer's last frame, is final, or the peer can be anybody."""
        asked, secret = self._challenge, self._secret
        is_proved = secret is None or (
            asked is not None
            and isinstance(message, Refused)
            and secret.is_refusal_proved(message, self.hello, asked.member, asked.nonce, asked.protocol)
        )
        self.is_final = is_proved and not self.is_misled
        self.is_unproved = not (is_proved or self.is_misled)

    def _answer_challenge(self, challenge: Challenge) -> Proof | str:
        """Return a proof, or why not. The Challenge can come from anybody: the proof must be of no use to them."""
        named, dialled = challenge.member, address_of(self._target)  # type: ignore[arg-type]  # members are dialled
        if self._secret is None:
            self.is_final = True
            return ONLY_ACCEPTING_HAS_ONE
        if is_member(self._target) and named != self._target:
            self.is_misled = self._is_elsewhere(named)
            self._weigh(challenge)
            if self.is_misled:
                return f"{dialled} was dialled, and {_shown(address_of(named))!r} answered: the program that listens there passes connections on"
            return f"another incarnation of the member listens at {dialled} now"
        if named == self.hello.sender:
            self.is_itself = True
            return f"{dialled} leads back to this member itself"
        self._challenge = challenge
        return Proof(self._secret.prove(CONNECTING, self.hello, named, challenge.nonce, challenge.protocol))

    def _is_elsewhere(self, member: MemberId) -> bool:
        """Return whether that member is known under another address than the one that was dialled."""
        dialled = normalise(address_of(self._target))  # type: ignore[arg-type]  # members are dialled
        return normalise(address_of(member)) not in (dialled, normalise(self.hello.reached))


def _shown(text: str) -> str:
    """Return a text of an unproved peer in a form for the log: on one line, and of bounded length."""
    return "".join(each if each.isprintable() else "?" for each in text[:MAX_SHOWN])
