"""What a viewer asks for by a click: what if a link were cut, entries of a map, the story of a partition.

These are answered one at a time, each within bounds of time and size; who comes while several wait is told to try again.
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from phalanx.codec.bounds import MAX_SHOWN_BYTES
from phalanx.codec.values import MSGPACK_PREFIX, from_checked_data, to_key_data
from phalanx.common.errors import CorruptDataError, PhalanxError, UnavailableError, UsageError
from phalanx.common.ids import MemberId, address_of
from phalanx.common.map_settings import check_name
from phalanx.http.console.story import as_object
from phalanx.http.served_member import Questions, ServedMember
from phalanx.http.what_if import answer_what_if
from phalanx.maps.async_map import AsyncMap
from phalanx.reports.entries import KeyType, Undecodable, key_of, to_key, undecoded, value_of
from phalanx.reports.placement import Placement
from phalanx.reports.value_json import as_json
from phalanx.wire.messages import HistoryReply

MOST_WAITING: Final = 8
WITHIN_S: Final = 3.0
MOST_ENTRIES: Final = 100
MOST_EVENTS: Final = 200
PAGE_BYTES: Final = 32 * 1024
MOST_POSITION_BYTES: Final = 8 * 1024
MOST_CHARACTERS: Final = 4_000
"""The most characters of a key or value that are shown."""


class Busy(Exception):
    """Too many ask at once."""


class Lookups:
    """Answers of one member."""

    def __init__(self, member: ServedMember, questions: Questions) -> None:
        self._member, self._questions = member, questions
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def in_turn(self, answer: Callable[[], Awaitable[Any]]) -> Any:
        """Return the answer, when those before have theirs. Raises `Busy`, and `UnavailableError` if it takes too long."""
        if self._waiting >= MOST_WAITING:
            raise Busy
        self._waiting += 1
        try:
            async with self._turn, asyncio.timeout(WITHIN_S):
                return await answer()
        except TimeoutError:
            raise UnavailableError(f"there is no answer within {WITHIN_S:g} s") from None
        finally:
            self._waiting -= 1

    # --- what if ----------------------------------------------------------------------------------------------------

    async def what_if(self, query: Mapping[str, Any]) -> dict[str, Any]:
        """Return which members would be kept if the cuts (`cut=A-B`, several) were there, as `phalanx what-if` does."""
        view, table = self._member.node.membership.view, self._member.node.installed_table.table
        if view is None:
            raise UnavailableError("this member is in no cluster")
        if not query["cut"]:
            raise UsageError(f"cut: give one or more, such as {address_of(view.master)}-*")
        return await answer_what_if(Placement(view, table, table.maps.depth), query["cut"])

    # --- a partition ------------------------------------------------------------------------------------------------

    async def partition(self, number: int, members: Iterable[MemberId]) -> dict[str, Any]:
        """Return what all members have decided about a partition, as `phalanx why` asks for it."""
        asked = list(members)
        replies = await asyncio.gather(
            *(self._questions.history(each, number) for each in asked), return_exceptions=True
        )
        now = time.time_ns() // 1_000_000
        events: list[dict[str, Any]] = []
        for member, reply in zip(asked, replies, strict=True):
            if isinstance(reply, HistoryReply):
                for place, (age, line) in enumerate(zip(reply.ages, reply.events, strict=True)):
                    fields = msgspec.json.decode(line)
                    if "partition" in fields:
                        events.append(as_object(len(events), now - age, member, fields.pop("event"), fields))
                    if place % 50 == 49:
                        await asyncio.sleep(0)
        silent = [
            address_of(each) for each, reply in zip(asked, replies, strict=True) if isinstance(reply, BaseException)
        ]
        events.sort(key=lambda each: int(each["at"]))
        return {"partition": number, "events": events[-MOST_EVENTS:], "silent": silent}

    # --- into a map -------------------------------------------------------------------------------------------------

    async def entries(self, query: Mapping[str, Any]) -> dict[str, Any]:
        """Return entries of a map: that of a key (`key`, `key_type`), or a page of those that fulfil a condition (`where`). `next` of the
        answer, given as `after`, leads to the page behind it; None: there is none.
        """
        name = query["map"]
        check_name(name)
        if query["key"] is not None:
            return await self._by_key(name, query["key"], query["key_type"] or KeyType.STR.value)
        return await self._by_condition(name, query["where"] or "true", _position(query["after"] or ""))

    async def _by_key(self, name: str, text: str, kind: str) -> dict[str, Any]:
        if kind not in list(KeyType):
            raise UsageError(f"key_type: {kind!r} is not one of {', '.join(KeyType)}")
        try:
            data = to_key_data(to_key(text, KeyType(kind)))
        except UsageError as error:
            raise UsageError(str(error).replace("--key-type ", "the type ")) from None
        entries = self._member.untraced_map(name)
        [value] = await entries.get_data([data])
        found = [] if value is None else [await _entry(entries, data, value)]
        return {"map": name, "entries": found, "is_all": True, "next": None}

    async def _by_condition(self, name: str, where: str, after: bytes) -> dict[str, Any]:
        found: list[dict[str, Any]] = []
        last = after
        deadline = time.monotonic() + WITHIN_S / 2
        entries = self._member.untraced_map(name)
        async for keys, values in entries.find_data(where, PAGE_BYTES, MAX_SHOWN_BYTES, after):
            for key, value in zip(keys, values, strict=True):
                if len(found) >= MOST_ENTRIES:
                    return {"map": name, "entries": found, "is_all": False, "next": _as_position(last)}
                found.append(await _entry(entries, key, value))
                last = key
                await asyncio.sleep(0)  # the member works meanwhile
            if time.monotonic() > deadline:
                return {"map": name, "entries": found, "is_all": False, "next": _as_position(last) if found else None}
            await asyncio.sleep(0)
        return {"map": name, "entries": found, "is_all": True, "next": None}


def _as_position(key: bytes) -> str | None:
    """Return a serialised key as text for a query; None: it is too long for one."""
    return urlsafe_b64encode(key).decode() if len(key) <= MOST_POSITION_BYTES else None


def _position(text: str) -> bytes:
    try:
        return b64decode(text, altchars=b"-_", validate=True)
    except ValueError:
        raise UsageError("after: this is not a position; give `next` of a page before") from None


async def _entry(entries: AsyncMap[Any, Any], key: bytes, value: bytes) -> dict[str, Any]:
    restored: Any
    if len(value) > MAX_SHOWN_BYTES:
        restored = undecoded(value, f"not shown: values of more than {MAX_SHOWN_BYTES >> 10} KiB are not read here")
    elif value[:4] == MSGPACK_PREFIX:
        restored = value_of(value, from_checked_data)
    else:
        try:
            restored = await entries.decode(value)
        except CorruptDataError:
            restored = value_of(value)  # says what is wrong
    return {"key": _shown(key_of(key)), "value": _shown(restored), "bytes": len(value)}


def _shown(value: Any) -> str:
    """Return a value as the text that the page shows."""
    if isinstance(value, Undecodable):
        return value.in_words()
    text = value if isinstance(value, str) else as_json(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}… ({len(text):,} characters)"


def query_of(request: Request, one: tuple[str, ...], several: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the parameters of a request. Raises `UsageError` for others."""
    given = request.query_params
    for name in given:
        if name not in one + several:
            raise UsageError(f"{name[:40]!r} cannot be asked for here: give {', '.join(one + several)}")
    return {name: given.get(name) for name in one} | {name: given.getlist(name) for name in several}


async def as_response(made: Awaitable[Any]) -> Response:
    """Return the answer as JSON, or what was wrong."""
    try:
        found, status = await made, 200
    except Busy:
        found, status = {"error": "there are too many requests: try again in a moment"}, 429
    except UsageError as error:
        found, status = {"error": str(error)}, 400
    except UnavailableError as error:
        found, status = {"error": str(error)}, 503
    except PhalanxError as error:
        found, status = {"error": str(error)}, 409
    text = msgspec.json.encode(found, enc_hook=str) + b"\n"
    return Response(text, status, media_type="application/json")
