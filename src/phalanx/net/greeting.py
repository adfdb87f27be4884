"""The first frames of a connection, at either end: who is there, and whether both have the same secret or both none.

    connecting                      accepting
    Hello (nonce)           ->
                            <-      Challenge (nonce)        only with a secret
    Proof                   ->
                            <-      Welcome (proof), or Refused (why)

Without a secret, Hello is answered by Welcome or Refused. Nothing else is read before that, no frame may be longer than
`MAX_GREETING_BYTES`, and all of it takes `GREETING_TIMEOUT_S` at most. A stranger is told what to do, and neither whether
its cluster's name is right nor whom it reached.
"""

from __future__ import annotations

from phalanx.common.ids import MemberId, Target
from phalanx.net.secret import ACCEPTING, CONNECTING, SECRET_FILE_VARIABLE, Secret, draw_nonce
from phalanx.wire.handshake import judge_hello, judge_protocol, refusal_in
from phalanx.wire.messages import PROTOCOL_VERSION, Challenge, Handshake, Hello, Proof, Refused, Welcome

MAX_GREETING_BYTES = 16 * 1024
GREETING_TIMEOUT_S = 5.0
"""For opening a connection and the greeting together."""

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

    def __init__(self, this: MemberId, cluster: str, secret: Secret | None) -> None:
        self._this, self._cluster, self._secret = this, cluster, secret
        self._asked: Hello | None = None
        """What the peer said before it was asked for a proof; None: it was not asked."""
        self._nonce = b""
        """Of the challenge."""
        self.hello: Hello | None = None
        """What the peer said, once it may talk."""
        self.is_distrusted = False
        """Whether the peer was refused because of the secret."""

    def answer(self, message: Handshake) -> Challenge | Welcome | Refused:
        """The answer to the peer's next frame. The greeting is over unless this is a `Challenge`."""
        hello, secret = self._asked, self._secret
        if hello is None or secret is None:
            return self._answer_first(message)
        if not isinstance(message, Proof):
            return self._distrust("the peer did not answer the challenge")
        if not secret.is_proved(message.proof, CONNECTING, hello, self._this, self._nonce):
            return self._distrust(ANOTHER_SECRET)
        judgement = self._judge(hello)
        if isinstance(judgement, Refused):
            return judgement
        return Welcome(self._this, secret.prove(ACCEPTING, hello, self._this, self._nonce))

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


class Connecting:
    """The greeting at the connecting end. `hello` is what it begins with."""

    def __init__(self, target: Target, cluster: str, sender: str, secret: Secret | None) -> None:
        self._target, self._secret = target, secret
        self.hello = Hello(PROTOCOL_VERSION, cluster, sender, target, draw_nonce() if secret is not None else b"")
        self._challenge: Challenge | None = None
        self.member: MemberId | None = None
        """Who answered, once both may talk."""

    def answer(self, message: Handshake) -> Proof | str | None:
        """What follows the peer's next frame: a proof to send, why not to talk with it, or None: both may talk."""
        if isinstance(message, Challenge) and self._challenge is None:
            if self._secret is None:
                return ONLY_ACCEPTING_HAS_ONE
            self._challenge = message
            return Proof(self._secret.prove(CONNECTING, self.hello, message.member, message.nonce))
        if (refusal := refusal_in(message, self._target)) is not None:
            return refusal
        if not isinstance(message, Welcome):
            return "the peer did not answer the greeting as a member does"
        if self._secret is not None:
            asked = self._challenge
            if asked is None:
                return PEER_NO_SECRET
            if not self._secret.is_proved(message.proof, ACCEPTING, self.hello, asked.member, asked.nonce) or (
                message.member != asked.member
            ):
                return PEER_ANOTHER_SECRET
        self.member = message.member
        return None
