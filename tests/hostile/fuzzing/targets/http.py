"""What comes to the HTTP port of a member that runs in this process: requests, whole and broken."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import Any, ClassVar
from urllib.parse import quote

import phalanx
from hostile.fuzzing import values
from hostile.fuzzing.changes import ODD_NUMBERS, changed_bytes
from hostile.fuzzing.target import MIB, Case, Target, Turns, Wrong
from hostile.fuzzing.targets.evaluation import Where
from phalanx.codec.values import to_key_data

WITHIN_S = 3.0
"""An answer that takes longer is broken off: some have no end."""


class Http(Target):
    """The bytes of a connection."""

    name = "http"
    answer_bytes: ClassVar[int] = 32 * MIB
    _paths = (
        "/", "/livez", "/readyz", "/safez", "/metrics", "/api/members", "/api/partitions", "/api/maps", "/api/safe", "/api/openapi.json", "/openapi.json",
        "/api/losses", "/console/stream", "/console/entries", "/console/what-if", "/console/partition", "/console/settings", "/none", "/%00", "/console/../x", "//",
    )  # fmt: skip
    _names = (
        "map",
        "where",
        "key",
        "type",
        "partition",
        "cut",
        "cuts",
        "name",
        "after",
        "from",
        "limit",
        "member",
        "kind",
        "history",
    )
    _headers = (
        "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Authorization: Bearer x", "Authorization: Basic !!", "Content-Length: 5",
        "Transfer-Encoding: chunked", "Connection: close", "Host: evil.example", "Accept-Encoding: gzip", "Last-Event-ID: 1", "Cookie: a=b",
        "Upgrade: websocket", "Expect: 100-continue", "X: " + "y" * 5_000,
    )  # fmt: skip

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._member: Any = self._loop.run_until_complete(self._start())
        self._turns = Turns()
        self._where = Where()
        run = asyncio.Handle._run

        def measured(handle: asyncio.Handle) -> None:
            self._turns.run(run, handle)

        asyncio.Handle._run = measured  # type: ignore[method-assign, assignment]  # each callback of the loop is a turn

    async def _start(self) -> Any:
        member = await phalanx.start_member(phalanx.Config(port=0, http_port=0))
        entries = member.map("m")
        for number in range(50):
            await entries.put(f"key {number}", {"price": number, "city": "Oslo", "a": {"b": [1, 2]}})
        await entries.put("big", "x" * 300_000)
        # What a client that is no friend stored: none of it is made by a writer.
        for name, stored in (("same", values._same_hash(8_000, b"\x01")), ("int", values._long_int(60_000))):
            await entries.put(name, {})
            for owned in member.node.grid.ownership.owned:
                store = owned.replica.maps.get("m") if owned is not None else None
                key = to_key_data(name)
                if store is not None and key in store.entries:
                    store.put(key, store.entries[key][:8] + stored, 0, member.now())
        return member

    def make(self, rng: Random) -> Case:
        return [self._request(rng) for _ in range(rng.choice((1, 1, 1, 2)))]

    def _request(self, rng: Random) -> bytes:
        path = rng.choice(self._paths)
        fields = [
            f"{name}={quote(self._text(rng, name))}"
            for name in (rng.choice(self._names) for _ in range(rng.randrange(4)))
        ]
        if rng.random() < 0.3:
            path, fields = "/console/entries", ["map=m", f"where={quote(self._text(rng, 'where'))}"]
        target = path + ("?" + "&".join(fields) if fields else "")
        method = rng.choice(("GET", "GET", "GET", "GET", "HEAD", "POST", "PUT", "OPTIONS", "get", "X"))
        headers = ["Host: localhost", *(rng.choice(self._headers) for _ in range(rng.choice((0, 0, 0, 1, 2))))]
        made = "\r\n".join([f"{method} {target} HTTP/1.1", *headers, "", ""]).encode()
        return changed_bytes(rng, made) if rng.random() < 0.1 else made

    def _text(self, rng: Random, name: str) -> str:
        if name == "where":
            return self._where.make(rng)[0].decode("utf-8", "replace")
        if name == "map" and rng.random() < 0.7:
            return "m"
        return str(
            rng.choice(
                (*values.ODD_TEXTS, *ODD_NUMBERS, "key 1", "text", "5701-5702", "1" * 5_000, "127.0.0.1:1-127.0.0.1:2")
            )
        )

    def play(self, case: Case, turns: Turns) -> None:
        self._turns = turns
        turns.count += 1
        data = b"".join(case)[:MIB]
        if data:
            self._loop.run_until_complete(self._ask(data))
        if self._member.is_over:
            raise Wrong("the member has ended")

    async def _ask(self, data: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._member.http_port)
        told = b""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(WITHIN_S):
                writer.write(data)
                writer.write_eof()
                while piece := await reader.read(65_536):
                    told = told or piece
                    if b"text/event-stream" in told[:1_000]:
                        break  # it has no end
        writer.transport.abort()
        if told and not told.startswith(b"HTTP/1.1 "):
            raise Wrong(f"answered is {told[:100]!r}")
        if told.startswith(b"HTTP/1.1 500"):
            raise Wrong(f"an error of the server: {told[-300:]!r}")


TARGETS: dict[str, type[Target]] = {Http.name: Http}
