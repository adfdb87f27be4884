"""The cluster's secret: where it comes from, and how a connection proves that both ends have it.

It is never sent. Each end draws a nonce for the connection and proves that it has the secret with an HMAC-SHA256 of both
nonces, the cluster's name, who wants to talk to whom, and which end it is: a proof fits one connection, in one direction.
The connecting end proves first, so that who merely knocks gets nothing from which a weak secret could be guessed.

The keys of what follows are drawn in the same way, for purposes of their own (`net/encrypted_records.py`): only the two ends have
them, whoever passed their greeting on. So what follows is authenticated, too. It is not encrypted.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from pathlib import Path

import msgspec

from phalanx.common.errors import UsageError
from phalanx.common.ids import MemberId
from phalanx.wire.messages import Hello, Refused

SECRET_FILE_VARIABLE = "PHALANX_SECRET_FILE"
"""Names the file where nothing else does."""
MIN_SECRET_BYTES = 16
MAX_SECRET_BYTES = 1024
NONCE_BYTES = 32
CONNECTING, ACCEPTING, REFUSING = "connecting", "accepting", "refusing"


class Secret:
    """A cluster's secret. Neither its text nor its bytes show in any `repr`."""

    __slots__ = ("_key",)

    def __init__(self, text: str | bytes, where: str = "secret") -> None:
        """Raises `UsageError` for one that could be guessed. White space at both ends does not count."""
        key = (text.encode() if isinstance(text, str) else text).strip()
        if not MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES:
            raise UsageError(
                f"{where}: the cluster's secret has {len(key)} bytes, and needs {MIN_SECRET_BYTES} to "
                f"{MAX_SECRET_BYTES}; draw one: openssl rand -base64 32"
            )
        self._key = key

    def record_keys(self, hello: Hello, member: MemberId, nonce: bytes) -> tuple[bytes, bytes]:
        """The keys of what follows this one greeting: of what the connecting end sends, and of what the accepting end does."""
        return (
            self._authenticate("records of the connecting end", hello, member, nonce),
            self._authenticate("records of the accepting end", hello, member, nonce),
        )

    def prove(self, end: str, hello: Hello, member: MemberId, nonce: bytes) -> bytes:
        """Return what the `end` of a connection shows to the other end; `member` and `nonce` are the accepting end's."""
        return self._authenticate(end, hello, member, nonce)

    def prove_refusal(self, reason: str, hello: Hello, member: MemberId, nonce: bytes) -> bytes:
        """Return what the accepting end shows with a refusal: that it has this secret, and gives this reason."""
        return self._authenticate(f"{REFUSING}: {reason}", hello, member, nonce)

    def is_refusal_proved(self, refused: Refused, hello: Hello, member: MemberId, nonce: bytes) -> bool:
        """Whether the accepting end has this secret, and refuses for this reason."""
        return hmac.compare_digest(refused.proof, self.prove_refusal(refused.reason, hello, member, nonce))

    def is_proved(self, proof: bytes, end: str, hello: Hello, member: MemberId, nonce: bytes) -> bool:
        """Whether the other end has this secret."""
        return hmac.compare_digest(proof, self.prove(end, hello, member, nonce))

    def _authenticate(self, purpose: str, hello: Hello, member: MemberId, nonce: bytes) -> bytes:
        """HMAC-SHA256 of all that was said, for one purpose: what is shown for one says nothing about another."""
        said = (
            "phalanx", purpose, hello.protocol, hello.cluster, hello.sender, hello.receiver, hello.nonce, hello.reached,
            member, nonce,
        )  # fmt: skip
        return hmac.digest(self._key, msgspec.msgpack.encode(said), "sha256")


def draw_nonce() -> bytes:
    """Fresh for each connection."""
    return secrets.token_bytes(NONCE_BYTES)


def secret_file_of(secret: str | None, secret_file: str | os.PathLike[str] | None) -> str | os.PathLike[str] | None:
    """The file that is to be read: the one given, else the one that the environment names, unless a secret is given."""
    if secret is not None and secret_file is not None:
        raise UsageError("secret: secret_file is given as well; leave one of them out")
    if secret is not None:
        return None
    return secret_file if secret_file is not None else os.environ.get(SECRET_FILE_VARIABLE) or None


def find_secret(secret: str | None, secret_file: str | os.PathLike[str] | None) -> Secret | None:
    """The secret itself, the one in the file, or in the file that PHALANX_SECRET_FILE names; None: there is none.

    Raises `UsageError` for one that is too short, and for a file that cannot be read, or that others can read.
    """
    path = secret_file_of(secret, secret_file)
    if path is None:
        return Secret(secret) if secret is not None else None
    source = "secret_file" if secret_file is not None else SECRET_FILE_VARIABLE
    try:
        with Path(path).open("rb") as file:
            _check_mode(os.fstat(file.fileno()), f"{source} {os.fspath(path)}")
            return Secret(file.read(MAX_SECRET_BYTES + 3), f"{source} {os.fspath(path)}")
    except OSError as error:
        raise UsageError(f"{source}: cannot read {os.fspath(path)}: {error.strerror}") from error


def _check_mode(status: os.stat_result, where: str) -> None:
    """Whoever can read the secret is in the cluster. As ssh with its keys: a file of the user who runs this has to be
    that user's alone; what another user owns (root, say, who mounted it) is not this one's to change.
    """
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISREG(status.st_mode) and mode & 0o077 and status.st_uid == os.getuid():
        raise UsageError(
            f"{where}: it is open to other users (mode {mode:03o}), and who reads it can read and write all data: make it "
            f"yours alone (chmod 600), and draw another secret if somebody may have read it"
        )
