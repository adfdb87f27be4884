"""The cluster's secret: where it comes from, and how both ends of a connection prove that they have it.

The secret is never sent. Each end draws a nonce for the connection, and proves the secret with an HMAC-SHA256 of both
nonces, the cluster's name, both identities and its end: a proof is valid for one connection, in one direction. The
connecting end proves first, so that a peer without the secret gets nothing from which a weak secret could be guessed.

The keys of the records after the greeting are derived in the same way, each for its own purpose
(`net/authenticated_records.py`). Only the two ends have them, even if a third process forwarded the greeting. So all later
bytes are authenticated, too. They are not encrypted.
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
"""The environment variable that names the file if no setting does."""
MIN_SECRET_BYTES = 16
MAX_SECRET_BYTES = 1024
NONCE_BYTES = 32
CONNECTING, ACCEPTING, REFUSING = "connecting", "accepting", "refusing"


class Secret:
    """A cluster's secret. Neither its text nor its bytes show in any `repr`."""

    __slots__ = ("_key",)

    def __init__(self, text: str | bytes, where: str = "secret") -> None:
        """Keep the secret, without white space at both ends. Raises `UsageError` if it is too short or too long."""
        key = (text.encode() if isinstance(text, str) else text).strip()
        if not MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES:
            raise UsageError(
                f"{where}: the cluster's secret has {len(key)} bytes, and needs {MIN_SECRET_BYTES} to "
                f"{MAX_SECRET_BYTES}; make one: openssl rand -base64 32"
            )
        self._key = key

    def record_keys(self, hello: Hello, member: MemberId, nonce: bytes, protocol: int) -> tuple[bytes, bytes]:
        """Return the keys of the records after this greeting: of the connecting end's, and of the accepting end's."""
        return (
            self._authenticate("records of the connecting end", hello, member, nonce, protocol),
            self._authenticate("records of the accepting end", hello, member, nonce, protocol),
        )

    def prove(self, end: str, hello: Hello, member: MemberId, nonce: bytes, protocol: int) -> bytes:
        """Return the proof of one `end` for the other; `member`, `nonce` and `protocol` are the accepting end's."""
        return self._authenticate(end, hello, member, nonce, protocol)

    def prove_refusal(self, reason: str, hello: Hello, member: MemberId, nonce: bytes, protocol: int) -> bytes:
        """Return the proof that a refusal, with this reason, comes from an accepting end with this secret."""
        return self._authenticate(f"{REFUSING}: {reason}", hello, member, nonce, protocol)

    def is_refusal_proved(self, refused: Refused, hello: Hello, member: MemberId, nonce: bytes, protocol: int) -> bool:
        """Return whether a refusal, with its reason, comes from an accepting end with this secret."""
        return hmac.compare_digest(refused.proof, self.prove_refusal(refused.reason, hello, member, nonce, protocol))

    def is_proved(self, proof: bytes, end: str, hello: Hello, member: MemberId, nonce: bytes, protocol: int) -> bool:
        """Return whether the other end has proved this secret."""
        return hmac.compare_digest(proof, self.prove(end, hello, member, nonce, protocol))

    def _authenticate(self, purpose: str, hello: Hello, member: MemberId, nonce: bytes, protocol: int) -> bytes:
        """Return an HMAC-SHA256 of the greeting for one purpose; it reveals nothing about other purposes.

        `protocol`: the version that the accepting end has told.
        """
        said: tuple[object, ...] = (
            "phalanx", purpose, hello.protocol, hello.cluster, hello.sender, hello.receiver, hello.nonce, hello.reached,
            member, nonce, hello.newest, protocol,
        )  # fmt: skip
        if hello.onward:
            said += (hello.onward,)
        return hmac.digest(self._key, msgspec.msgpack.encode(said), "sha256")


def draw_nonce() -> bytes:
    """Return random bytes, new for each connection."""
    return secrets.token_bytes(NONCE_BYTES)


def secret_file_of(secret: str | None, secret_file: str | os.PathLike[str] | None) -> str | os.PathLike[str] | None:
    """Return the file to read: the given one, or that of the environment variable. None: no file is needed or named."""
    if secret is not None and secret_file is not None:
        raise UsageError("secret: secret_file is given as well; leave one of them out")
    if secret is not None:
        return None
    return secret_file if secret_file is not None else os.environ.get(SECRET_FILE_VARIABLE) or None


def find_secret(secret: str | None, secret_file: str | os.PathLike[str] | None) -> Secret | None:
    """Return the given secret, that of the file, or that of the file which PHALANX_SECRET_FILE names; None: there is
    none.

    Raises `UsageError` if the secret is too short or too long, or if its file cannot be read, or is open to others.
    """
    path = secret_file_of(secret, secret_file)
    if path is None:
        return Secret(secret) if secret is not None else None
    source = "secret_file" if secret_file is not None else SECRET_FILE_VARIABLE
    return Secret(read_private_file(source, path), f"{source} {os.fspath(path)}")


def read_secret_text(secret: str | None, secret_file: str | os.PathLike[str] | None) -> bytes | None:
    """Return the bytes of the secret that `find_secret` takes, to compare others with; None: there is none."""
    path = secret_file_of(secret, secret_file)
    if path is not None:
        return read_private_file("secret_file", path).strip()
    return secret.encode().strip() if secret is not None else None


def read_private_file(source: str, path: str | os.PathLike[str]) -> bytes:
    """Return what a file holds, up to a little more than a secret can have. `source`: the setting that names it.

    Raises `UsageError` if it cannot be read, or is open to others.
    """
    try:
        with Path(path).open("rb") as file:
            check_mode(os.fstat(file.fileno()), f"{source} {os.fspath(path)}")
            return file.read(MAX_SECRET_BYTES + 3)
    except OSError as error:
        raise UsageError(f"{source}: cannot read {os.fspath(path)}: {error.strerror}") from error


def check_mode(status: os.stat_result, where: str) -> None:
    """Raise `UsageError` if others can read the file of a secret, which `where` names: they could join the cluster.

    As ssh does with keys, this checks only a file of the user of this process. A file of another user (for example
    root, who mounted it) is not this user's to change.
    """
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISREG(status.st_mode) and mode & 0o077 and status.st_uid == os.getuid():
        raise UsageError(
            f"{where}: it is open to other users (mode {mode:03o}), and who reads it can read and write all data: make it "
            f"yours alone (chmod 600), and make a new secret if another user has perhaps read it"
        )
