"""The first frames of a connection, at either end: who is there, whether both have the same secret or both none, and whether
who answers is whom the other one dialled.

    connecting                      accepting
    Hello (nonce, whom)     ->
                            <-      Challenge (who, nonce)   only with a secret
    Proof                   ->
                            <-      Welcome (proof), or Refused (why, proof)

Without a secret, Hello is answered by Welcome or Refused, and frames follow. With one, records follow (`net/encrypted_records.py`).
Nothing else is read before that, no frame may be longer than `MAX_GREETING_BYTES`, and all of it takes `GREETING_TIMEOUT_S` at
most. A stranger is told what to do, and neither whether its cluster's name is right nor whether it came to the right member.
A refusal is final only with a proof: anybody may listen at the address of a member, and refuse.

**Passing a greeting on.** What the proofs alone do not prevent:

1. C was a member at c:5701, and has crashed. E, who has no secret, listens there now.
2. A, the master, dials c:5701, to see whether another side of the cluster is there. It says Hello, for c:5701, to E.
3. E connects to B, passes Hello on to it, and B's Challenge back to A.
4. A answers with its Proof, E passes it on, and B's Welcome back. All that was proved is true.
5. E drops A, keeps its connection to B, and would be A to B: the master. (With a client in place of A it would be the client.)

What does, each for what the others cannot see:

* **A proves nothing to another member than the one that it dialled.** A Challenge is not authenticated, so E may name in it
  whom it likes. But a Proof is for the member that the Challenge names: if E names C, B cannot use it; if E names B, A, who
  dialled the incarnation C, sends none.
* **B takes no Hello that is for somebody else.** Who knows only an address, as A in step 2, cannot tell who has it: a member
  has one by which the others know it, and may be reached at more. So A sends the Proof, and it covers the address that A
  dialled and the numeric one that its socket is connected to. B goes on if one of them is its own: the one by which the
  others know it, the one at which it listens, the one at which this connection arrived, or one of `also_known_as`. c:5701 is
  none of them. B judges that behind the proof: by then it is A's word, and a stranger learns nothing and writes nothing
  into B's log. A gets the Welcome only of a member that knows itself under what A dialled.
* **Nobody talks with itself.** If E passes A's greeting back to A, the Challenge names A, who does not answer it; and A as the
  accepting end refuses a Hello from A.
* **Records have keys that E does not have.** Some addresses are more than one machine's: loopback, the inner network of a
  container host, a name in front of several members. An E that listens at the one and can connect to the other gets its Hello
  through. It is then what any router is: it can read, and break the connection. What it alters, adds, leaves out or repeats does not
  verify, and in step 5 B executes nothing of what it says.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from phalanx.common.ids import Address, MemberId, Target, address_of, is_member
from phalanx.net.addresses import normalise
from phalanx.net.encrypted_records import RecordLayer
from phalanx.net.secret import ACCEPTING, CONNECTING, SECRET_FILE_VARIABLE, Secret, draw_nonce
from phalanx.wire.handshake import judge_hello, judge_protocol, refusal_in
from phalanx.wire.messages import PROTOCOL_VERSION, Challenge, Handshake, Hello, Proof, Refused, Welcome

MAX_GREETING_BYTES = 16 * 1024
GREETING_TIMEOUT_S = 5.0
"""For opening a connection and the greeting together."""

MAX_SHOWN = 1000
"""Characters of what a peer says that are told."""

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
        """`own_addresses`: normalised, under which a peer may have dialled this member, beside the one that it is known by."""
        self._this, self._cluster, self._secret = this, cluster, secret
        self._own_addresses = {normalise(address_of(this)), *own_addresses}
        self._asked: Hello | None = None
        """What the peer said before it was asked for a proof; None: it was not asked."""
        self._nonce = b""
        """Of the challenge."""
        self.hello: Hello | None = None
        """What the peer said, once it may talk."""
        self.is_distrusted = False
        """Whether the peer was refused because of the secret, or because its greeting was for somebody else."""
        self.records: RecordLayer | None = None
        """Protects what follows, once the peer may talk; None: there is no secret."""

    def answer(self, message: Handshake) -> Challenge | Welcome | Refused:
        """The answer to the peer's next frame. The greeting is over unless this is a `Challenge`."""
        hello, secret = self._asked, self._secret
        if hello is None or secret is None:
            return self._answer_first(message)
        if not isinstance(message, Proof):
            return self._distrust("the peer did not answer the challenge")
        if not secret.is_proved(message.proof, CONNECTING, hello, self._this, self._nonce):
            return self._distrust(ANOTHER_SECRET)
        if not self._is_meant(hello):
            self.is_distrusted = True
            return self.refuse(_not_meant(hello, self._this))
        if hello.sender == self._this:
            return self._distrust("somebody passed this member's own greeting on to it")
        judgement = self._judge(hello)
        if isinstance(judgement, Refused):
            return self.refuse(judgement.reason)
        from_peer, to_peer = secret.record_keys(hello, self._this, self._nonce)
        self.records = RecordLayer(to_peer, from_peer)
        return Welcome(self._this, secret.prove(ACCEPTING, hello, self._this, self._nonce))

    def refuse(self, reason: str) -> Refused:
        """A refusal for a peer that has proved what it is, if there is a secret: it is to believe it."""
        hello, secret = self._asked, self._secret
        if hello is None or secret is None:
            return Refused(reason)
        return Refused(reason, secret.prove_refusal(reason, hello, self._this, self._nonce))

    def _is_meant(self, hello: Hello) -> bool:
        """Whether the peer dialled an address of this member: as it was given, or as it was found for a name."""
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
        return Challenge(self._this, self._nonce)

    def _judge(self, hello: Hello) -> Welcome | Refused:
        judgement = judge_hello(hello, self._this, self._cluster)
        if isinstance(judgement, Welcome):
            self.hello = hello
        return judgement

    def _distrust(self, reason: str) -> Refused:
        self.is_distrusted = True
        return Refused(reason)


def _not_meant(hello: Hello, this: MemberId) -> str:
    """Why a greeting that is proved is refused: told to the connecting side, and to those who run this member."""
    dialled = address_of(MemberId(hello.receiver))
    found = f" (found at {hello.reached})" if hello.reached not in ("", normalise(dialled)) else ""
    return (
        f"{dialled}{found} was dialled, and the connection came to {address_of(this)}, which is not known under that address: "
        f"whoever listens there passes connections on. If that is meant to be (a mapped port of a container, a virtual "
        f"address, a tunnel), start {address_of(this)} with --also-known-as {dialled} (setting also_known_as)"
    )


class Connecting:
    """The greeting at the connecting end. It begins with `begin`, when the socket is connected."""

    def __init__(self, target: Target, cluster: str, sender: str, secret: Secret | None) -> None:
        self._target, self._secret = target, secret
        self.hello = Hello(PROTOCOL_VERSION, cluster, sender, target, draw_nonce() if secret is not None else b"")
        self._challenge: Challenge | None = None
        self.member: MemberId | None = None
        """Who answered, once both may talk."""
        self.records: RecordLayer | None = None
        """Protects what follows, once both may talk; None: there is no secret."""
        self.is_misled = False
        """Whether both do not talk because whoever listens at the dialled address seems to pass connections on."""
        self.is_itself = False
        """Whether both do not talk because the address that was dialled led back to who dialled."""
        self.is_final = False
        """Whether both do not talk because the peer, which may be believed, refuses: trying again does not help."""
        self.is_unproved = False
        """Whether both do not talk because the peer refuses, or has another secret or none: it may be anybody."""

    def begin(self, reached: Address) -> Hello:
        """Return the first frame: `reached` is the numeric address that the socket is connected to, normalised."""
        self.hello = msgspec.structs.replace(self.hello, reached=reached)
        return self.hello

    def answer(self, message: Handshake) -> Proof | str | None:
        """Return what follows the peer's next frame: a proof to send, why not to talk with it, or None: both may talk."""
        if isinstance(message, Challenge) and self._challenge is None:
            return self._answer_challenge(message)
        if (refusal := refusal_in(message, self._target)) is not None:
            self.is_misled = self._challenge is not None and self._is_elsewhere(self._challenge.member)
            self._weigh(message)
            return _shown(refusal)
        if not isinstance(message, Welcome):
            self._weigh(message)
            return "the peer did not answer the greeting as a member does"
        if self._secret is not None:
            asked = self._challenge
            if asked is None:
                self._weigh(message)
                return PEER_NO_SECRET
            if not self._secret.is_proved(message.proof, ACCEPTING, self.hello, asked.member, asked.nonce) or (
                message.member != asked.member
            ):
                self._weigh(message)
                return PEER_ANOTHER_SECRET
            self.records = RecordLayer(*self._secret.record_keys(self.hello, asked.member, asked.nonce))
        self.member = message.member
        return None

    def _weigh(self, message: Handshake) -> None:
        """Both do not talk, because of what the peer said last: is that the word of a member?"""
        asked, secret = self._challenge, self._secret
        is_proved = secret is None or (
            asked is not None
            and isinstance(message, Refused)
            and secret.is_refusal_proved(message, self.hello, asked.member, asked.nonce)
        )
        self.is_final = is_proved and not self.is_misled
        self.is_unproved = not (is_proved or self.is_misled)

    def _answer_challenge(self, challenge: Challenge) -> Proof | str:
        """Anybody may have sent it: it is answered only if a proof for whom it names may get into any hands."""
        named, dialled = challenge.member, address_of(self._target)  # type: ignore[arg-type]  # members are dialled
        if self._secret is None:
            self.is_final = True
            return ONLY_ACCEPTING_HAS_ONE
        if is_member(self._target) and named != self._target:
            self.is_misled = self._is_elsewhere(named)
            self._weigh(challenge)
            if self.is_misled:
                return f"{dialled} was dialled, and {_shown(address_of(named))!r} answered: whoever listens there passes connections on"
            return f"another incarnation of the member listens at {dialled} now"
        if named == self.hello.sender:
            self.is_itself = True
            return f"{dialled} leads back to this member itself"
        self._challenge = challenge
        return Proof(self._secret.prove(CONNECTING, self.hello, named, challenge.nonce))

    def _is_elsewhere(self, member: MemberId) -> bool:
        """Whether that member is known under another address than the one that was dialled."""
        dialled = normalise(address_of(self._target))  # type: ignore[arg-type]  # members are dialled
        return normalise(address_of(member)) not in (dialled, normalise(self.hello.reached))


def _shown(text: str) -> str:
    """Return what an unproved peer says in a form that fits a log: of bounded length, and in one line."""
    return "".join(each if each.isprintable() else "?" for each in text[:MAX_SHOWN])
