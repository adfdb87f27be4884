"""The settings of a member's endpoints: which of them are refused before a member starts, and the endpoints that they make."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Final, Protocol

from phalanx.common.errors import UsageError
from phalanx.common.words import quoted
from phalanx.endpoints.protocol import (
    Credentials,
    Endpoint,
    GridAccess,
    MakeEndpoint,
    ProtocolSettings,
    credentials_of,
)
from phalanx.maps.own_maps import check_not_ours
from phalanx.maps.requests import check_map_name
from phalanx.net.addresses import is_loopback
from phalanx.net.secret import MAX_SECRET_BYTES, read_private_file, read_secret_text
from phalanx.net.sniffing import Spoken
from phalanx.runtime.settings.optional_packages import require_packages

PROTOCOLS: Final = {"hazelcast": "phalanx_protocols.hazelcast.server", "redis": "phalanx_protocols.resp.server"}
"""The protocols that `Config.serve` can name, and the modules that make their endpoints: a member that does not serve one does not load
it."""


class EndpointSettings(ProtocolSettings, Protocol):
    """The settings that are about endpoints (`runtime.config.Config`)."""

    @property
    def host(self) -> str: ...
    @property
    def serve(self) -> Sequence[str]: ...
    @property
    def serve_token_file(self) -> str | None: ...
    @property
    def secret(self) -> str | None: ...
    @property
    def secret_file(self) -> str | None: ...


MIN_TOKEN_BYTES = 16
MOST_REDIS_MAPS = 10_000


def check_served(config: EndpointSettings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the protocols and the maps of Redis clients. Raises `UsageError` if settings are wrong, or do not fit together."""
    served = _texts("serve", config.serve)
    for name in served:
        if name not in PROTOCOLS:
            raise UsageError(
                f"serve: {quoted(name)} is not a protocol that members speak: give {' or '.join(PROTOCOLS)}"
            )
        require_packages(f"serve: {name}", [PROTOCOLS[name].partition(".")[0]], "protocols")
    if len(set(served)) != len(served):
        raise UsageError("serve: a protocol is named twice")
    maps = tuple(check_not_ours(check_map_name(name)) for name in _texts("redis_maps", config.redis_maps))
    if len(maps) > MOST_REDIS_MAPS or len(set(maps)) != len(maps):
        raise UsageError(
            f"redis_maps: give at most {MOST_REDIS_MAPS} different names of maps, one for each database number"
        )
    if served and config.serve_token_file is None and not is_loopback(config.host):
        raise UsageError(
            f"serve: {config.host!r} is not a loopback address, and without a token anybody who reaches it could read and write "
            f"through {' or '.join(served)}: give a serve_token_file (--serve-token-file), or listen on 127.0.0.1"
        )
    return served, maps


def _texts(name: str, given: Sequence[str]) -> tuple[str, ...]:
    if (
        isinstance(given, str)
        or not isinstance(given, list | tuple)
        or not all(isinstance(each, str) for each in given)
    ):
        raise UsageError(f"{name}: {quoted(given)} is not a list of texts")
    return tuple(given)


def read_credentials(config: EndpointSettings) -> Credentials | None:
    """Return what clients of endpoints must show; None: nothing. Raises `UsageError` for a file that is not fit for it."""
    path = config.serve_token_file
    if path is None:
        return None
    data = read_private_file("serve_token_file", path).strip()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"serve_token_file {path}: it is not text in UTF-8") from None
    found = credentials_of(text)
    size = len(found.password.encode())
    if not MIN_TOKEN_BYTES <= size <= MAX_SECRET_BYTES:
        raise UsageError(
            f"serve_token_file {path}: the token has {size} bytes, and needs {MIN_TOKEN_BYTES} to {MAX_SECRET_BYTES}; make one: "
            f"openssl rand -hex 32"
        )
    secret = read_secret_text(config.secret, config.secret_file)
    if secret is not None and secret in (data, found.password.encode()):
        raise UsageError(
            f"serve_token_file {path}: this is the cluster's secret, and clients of other systems send their token in clear text: draw "
            f"another one: openssl rand -hex 32"
        )
    return found


def make_endpoints(config: EndpointSettings, grid: GridAccess) -> dict[Spoken, Endpoint]:
    """Return the endpoints that the settings name, by protocol. Raises `UsageError`."""
    if not config.serve:
        return {}
    credentials = read_credentials(config)
    made: dict[Spoken, Endpoint] = {}
    for name in config.serve:
        make: MakeEndpoint = import_module(PROTOCOLS[name]).make_endpoint
        made[Spoken(name)] = make(grid, credentials, config)
    return made
