"""Changes of the settings of a map from the console: only if that is allowed, and only from the page itself.

A browser adds the password of Basic to requests of any page. So a change must contain the key that the page received in its
stream, which other sites cannot read; and it must be JSON, and of the same origin as far as the browser says.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from typing import Annotated, Any, Final

import msgspec
from starlette.requests import Request

from phalanx.common.backups import MAX_BACKUPS, BackupCount
from phalanx.common.errors import UnavailableError, UsageError
from phalanx.common.map_settings import MapChange, check_change, check_name
from phalanx.common.words import shown
from phalanx.http.served_member import Questions
from phalanx.reports.maps import settings_as_object

logger = logging.getLogger("phalanx.http")

KEY_HEADER: Final = "x-phalanx-key"
MOST_BYTES: Final = 4_096


class ChangeRefused(Exception):
    """The request is refused; the text says why."""


class WantedBackups(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sync: Annotated[int, msgspec.Meta(ge=0, le=MAX_BACKUPS)]
    # `async` is a word of Python
    asynchronous: Annotated[int, msgspec.Meta(ge=0, le=MAX_BACKUPS)] = msgspec.field(name="async")


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the page sends: a map, and what of its settings is to change."""

    map: str
    backups: WantedBackups | None = None
    merge_policy: str | None = None
    max_entries: int | None = None
    max_bytes: int | None = None
    eviction: str | None = None
    max_idle_ms: int | None = None
    dicts: str | None = None
    durability: str | None = None


class Changes:
    """The changes of one member's console."""

    def __init__(self, questions: Questions, may_change: bool) -> None:
        self._questions, self.may_change = questions, may_change
        self.key = secrets.token_urlsafe(24)

    async def change(self, request: Request) -> dict[str, Any]:
        """Change the settings of a map as the request says, and return them. Raises `ChangeRefused`, `UsageError`."""
        self._check(request)
        wanted = _decoded(await _body(request))
        check_name(wanted.map)
        given = {name: value for name, value in msgspec.structs.asdict(wanted).items() if value is not None}
        values = {name: value for name, value in given.items() if name != "map"}
        if wanted.backups is not None:
            values["backups"] = BackupCount(wanted.backups.sync, wanted.backups.asynchronous)
        change = MapChange(**values)
        check_change(wanted.map, change)
        view = self._questions.member.node.membership.view
        if view is None:
            raise UnavailableError("this member is in no cluster")
        # The log records each request of a holder of the token, whatever its result.
        logger.warning("a console changes settings: %s", shown(repr(given), 1_000))
        await self._questions.change_map(view.master, wanted.map, change)
        _, plan = await self._questions.maps()
        return {"map": wanted.map, "settings": settings_as_object(plan.of(wanted.map))}

    def _check(self, request: Request) -> None:
        if not self.may_change:
            raise ChangeRefused("settings cannot be changed at this member: set http_allow_changes")
        headers = request.headers
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise ChangeRefused("a change is sent as application/json")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise ChangeRefused("another site has sent this request")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != headers.get("host", ""):
            raise ChangeRefused("another site has sent this request")
        if not hmac.compare_digest(headers.get(KEY_HEADER, "").encode(), self.key.encode()):
            raise ChangeRefused("the page was made by another process of this member: load it again")


async def _body(request: Request) -> bytes:
    found = b""
    async for piece in request.stream():
        found += piece
        if len(found) > MOST_BYTES:
            raise UsageError(f"a change has at most {MOST_BYTES} bytes")
    return found


def _decoded(data: bytes) -> Wanted:
    try:
        return msgspec.json.decode(data, type=Wanted)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"this is not a change of settings: {error}") from None
