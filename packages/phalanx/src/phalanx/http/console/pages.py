"""The files of the page, read once, with a policy that lets a browser load nothing but them."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
}
_KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""Ends of the names that are served, with their types; other files, such as type declarations, are not."""


def routes() -> list[Route]:
    """Return the routes of all files: the page at `/`, the others under `/console/`. HEAD comes along with each."""
    found = []
    for name, text in sorted(_read().items()):
        kind = _KINDS.get(f".{name.rpartition('.')[2]}")
        if kind is not None:
            path = "/" if name == "index.html" else f"/console/{name}"
            found.append(Route(path, _Page(text, kind).respond))
    return found


class _Page:
    def __init__(self, text: bytes, kind: str) -> None:
        self._text, self._kind = text, kind

    async def respond(self, request: Request) -> Response:
        return Response(self._text, media_type=self._kind, headers=HEADERS)


def _read() -> dict[str, bytes]:
    """Return the files below `assets`, by their paths there."""
    found: dict[str, bytes] = {}
    folders = [("", files(__package__).joinpath("assets"))]
    for prefix, folder in folders:
        for each in folder.iterdir():
            if each.is_dir():
                folders.append((f"{prefix}{each.name}/", each))
            else:
                found[f"{prefix}{each.name}"] = each.read_bytes()
    return found
