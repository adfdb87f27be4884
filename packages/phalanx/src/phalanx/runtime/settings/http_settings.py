"""The settings of a member's HTTP port, and which of them are refused before a member starts."""

from __future__ import annotations

import ssl

from phalanx.common.errors import UsageError
from phalanx.net.addresses import is_loopback
from phalanx.net.secret import MAX_SECRET_BYTES, read_private_file

MIN_TOKEN_BYTES = 16


def read_token(path: str) -> bytes:
    """Return the token in a file. Raises `UsageError` if it cannot be read, is open to others, or too short or too long."""
    token = read_private_file("http_token_file", path).strip()
    if not MIN_TOKEN_BYTES <= len(token) <= MAX_SECRET_BYTES or not token.isascii() or b":" in token:
        raise UsageError(
            f"http_token_file {path}: the token has {len(token)} bytes, and needs {MIN_TOKEN_BYTES} to {MAX_SECRET_BYTES}, in ASCII, without "
            f"a colon; make one: openssl rand -base64 32"
        )
    return token


def load_certificate(certificate_file: str, key_file: str | None) -> ssl.SSLContext:
    """Return the context for TLS with this certificate chain. Raises `UsageError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # the default one writes its keys where SSLKEYLOGFILE says
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(certificate_file, key_file)
    except OSError as error:  # so is an `SSLError`
        reason = getattr(error, "reason", None) or error.strerror or error
        raise UsageError(
            f"http_certificate_file: {certificate_file} with the key {key_file or 'in the same file'} cannot be used: {reason}"
        ) from error
    return context


def check_http(
    host: str, port: int | str | None, token_file: str | None, certificate: str | None, key: str | None
) -> None:
    """Raise `UsageError` if the settings of the HTTP port do not fit together."""
    if key is not None and certificate is None:
        raise UsageError("http_key_file needs http_certificate_file: give both")
    if port is not None and token_file is None and not is_loopback(host):
        raise UsageError(
            f"http_host: {host!r} is not a loopback address, and without a token anybody who reaches it could read what the "
            f"cluster does: give an http_token_file, or listen on 127.0.0.1"
        )


def check_http_changes(may_change: bool, token_file: str | None) -> None:
    """Raise `UsageError` if anybody who reaches the port could change settings."""
    if may_change and token_file is None:
        raise UsageError(
            "http_allow_changes: without a token anybody who reaches the HTTP port could change the settings of maps: give "
            "an http_token_file, too"
        )
