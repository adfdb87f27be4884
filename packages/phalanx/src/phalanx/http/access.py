"""Who can ask what at the HTTP port, and for how long a request can take: an ASGI layer around the application.

Without a token the port is on loopback only, and a request must name this host: otherwise a page in a browser on this machine
could read the port under its own name, if that name resolves to this host (DNS rebinding).

Any page can let its visitor's browser send a request here, although it cannot read the answer, and the browser adds the password that
it knows. Browsers say in each request which site made it (Fetch Metadata): requests of other sites are refused before any work is
done for them, except links to the console.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from phalanx.net.addresses import is_loopback

logger = logging.getLogger("phalanx.http")

MOST_QUERY_BYTES: Final = 16 * 1024
"""The longest query, with what is escaped in it."""
RESPOND_WITHIN_S: Final = 10.0
"""A request that takes longer is broken off, also one whose asker does not read the answer."""
_OTHER_SITES: Final = ("cross-site", "same-site")
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


class Access:
    """Lets requests through that can be asked, within the time that they can take."""

    def __init__(
        self, app: ASGIApp, token: bytes | None, hosts: frozenset[str], free: frozenset[str], streams: frozenset[str]
    ) -> None:
        """`free`: paths that anybody can ask for. `streams`: paths whose responses have no end, and limit themselves. `hosts`: names under which the port can be asked without a token, besides those of loopback."""
        self._app, self._token, self._hosts, self._free = app, token, hosts, free
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope, Headers(scope=scope))
        has_begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                own = list(message.get("headers", ()))
                said = {name for name, _ in own}
                message["headers"] = own + [each for each in _HEADERS if each[0] not in said]
            await send(message)

        try:
            async with asyncio.timeout(None if scope["path"] in self._streams else RESPOND_WITHIN_S):
                await (refusal or self._app)(scope, receive, send_with_headers)
        except Exception as error:
            logger.warning("%s cannot be answered: %r", ascii(scope["path"]), error)
            if has_begun:
                raise  # what was begun cannot be ended in order: the server breaks it off
            failed = PlainTextResponse("this cannot be answered: the member's log says why\n", 500)
            await failed(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope, headers: Headers) -> PlainTextResponse | None:
        if headers.get("sec-fetch-site") in _OTHER_SITES and not _is_link_to_page(scope, headers):
            return PlainTextResponse("a page of another site asks for this\n", 403)
        if len(scope["query_string"]) > MOST_QUERY_BYTES:
            return PlainTextResponse(f"a query has at most {MOST_QUERY_BYTES:,} bytes\n", 414)
        if scope["path"] in self._free:
            return None
        if self._token is None:
            host = _host_in(headers.get("host", "").lower())
            if is_loopback(host) or host in self._hosts:
                return None
            return PlainTextResponse("use a known name or address of this host in the URL\n", 421)
        if hmac.compare_digest(_token_in(headers.get("authorization", "")), self._token):
            return None
        said = 'Basic realm="phalanx", charset="UTF-8"'
        return PlainTextResponse(
            "the token of http_token_file is needed: Authorization: Bearer ...\n", 401, {"www-authenticate": said}
        )


def _is_link_to_page(scope: Scope, headers: Headers) -> bool:
    """Return whether a browser opens the console in a window of its own."""
    how = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest", "document")
    return scope["path"] == "/" and scope["method"] in ("GET", "HEAD") and how == ("navigate", "document")


def _host_in(header: str) -> str:
    """Return the host of a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _token_in(authorization: str) -> bytes:
    """Return the token of a header: a bearer's, or the password of Basic, under any name."""
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return given.strip().encode()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(given.strip(), validate=True).partition(b":")[2]
        except binascii.Error:
            return b""
    return b""
