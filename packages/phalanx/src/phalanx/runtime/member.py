"""A running member, as the program that embeds it sees it: maps, locks, and when to leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, overload

from phalanx.common.errors import UnavailableError
from phalanx.maps.async_facade import AsyncFacade
from phalanx.maps.mistakes import HoldsMaps, NeedsAsyncWith
from phalanx.maps.own_maps import map_class
from phalanx.maps.tracing import make_tracing
from phalanx.maps.types import K, TypesOfMaps, V
from phalanx.net.connection import Dial
from phalanx.runtime.local.embedded import EmbeddedMap
from phalanx.runtime.member_driver import MemberDriver
from phalanx.runtime.settings.config import Config, given_config

LITE_PAUSE_S = 0.05
"""The pause between two checks whether a member has become lite, or a data member, as it was asked to."""


class Member(NeedsAsyncWith, AsyncFacade, MemberDriver, HoldsMaps):
    """A member of the grid in this process. Made by `start_member`. A `Duration` is a number of seconds, or a
    `datetime.timedelta`."""

    def __init__(
        self,
        config: Config,
        on_failure: Callable[[Member | None, BaseException], None] | None = None,
        dial: Dial | None = None,
    ) -> None:
        """`on_failure`: called with this member when it fails, to end the process; None: the process continues. `dial`: what it
        opens connections to other members with; None: its event loop.
        """
        super().__init__(config, None if on_failure is None else lambda error: on_failure(self, error), dial)
        self._types, self._locks = TypesOfMaps(self.caller.map_plan), self.caller.locks
        self._tracing = make_tracing(config.tracing, lambda: self.address)
        """What makes spans of the program's calls; None: they are not traced."""

    def __repr__(self) -> str:
        return f"Member({self.address}{', ended' if self.is_over else ''})"

    async def __aenter__(self) -> Member:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    # --- maps ------------------------------------------------------------------------------------------

    @overload
    def map(self, name: str, *, dicts: str | None = None) -> EmbeddedMap[Any, Any]: ...
    @overload
    def map(self, name: str, *, key: type[K], value: type[V], dicts: str | None = None) -> EmbeddedMap[K, V]: ...
    @overload
    def map(
        self, name: str, *, key: Any = None, value: Any = None, dicts: str | None = None
    ) -> EmbeddedMap[Any, Any]: ...
    def map(self, name: str, *, key: Any = None, value: Any = None, dicts: str | None = None) -> EmbeddedMap[Any, Any]:
        """Return the distributed map of that name, an `AsyncMap`; it exists as soon as something is stored in it.

        `key`, `value`: the types of keys and values (docs/how-to/typed-maps.md); None: any that can be stored.
        `dicts`: how dicts are stored, "rows"; or "json", so that programs in other languages read them, too. None: as the map's
        setting `dicts` says; as rows if it has none. Raises `UsageError` if the name is invalid, or a type cannot be used;
        calls about dicts do if `dicts` contradicts the setting.
        """
        made = map_class(EmbeddedMap, name)(name, self.caller, self._types.of(name, key, value, dicts))
        return made if self._tracing is None else self._tracing.traced(made)

    async def promote(self, *, timeout_s: float = 60.0) -> None:
        """Make this lite member a data member, which holds its share of the data.

        Raises `UnavailableError` if this takes longer than `timeout_s` seconds; the request stays valid.
        """
        await self._change_lite(False, timeout_s)

    async def demote(self, *, timeout_s: float = 60.0) -> None:
        """Make this member a lite member: others take over its replicas, and then it holds no data.

        Raises `UnavailableError` if this takes longer than `timeout_s` seconds, for example because no other member
        holds data. The request stays valid; `promote` withdraws it.
        """
        await self._change_lite(True, timeout_s)

    async def _change_lite(self, lite: bool, timeout_s: float) -> None:
        deadline = self._loop.time() + timeout_s
        while waits_for := await self.caller.change_lite(lite):
            if self._loop.time() >= deadline:
                raise UnavailableError(f"not yet after {timeout_s:g} s: {waits_for}")
            await asyncio.sleep(LITE_PAUSE_S)


async def start_member(
    config: Config | None = None, on_failure: Callable[[Member | None, BaseException], None] | None = None
) -> Member:
    """Start a member in this event loop. Wait until it has joined its cluster, and the cluster has `initial_members`.

    `config`: None is `Config()`, a cluster of one. `on_failure` is called with the member and the error if the member
    ends as in a crash after an unexpected error; a service can end its process there. Without it, only
    `Member.wait_ended` raises the error.

    Raises `UsageError` if the member cannot listen on its address, or a setting is wrong, and `JoinFailed` if no seed
    admits it within `join_attempts` tries.
    """
    member = Member(given_config(config), on_failure)
    await member.start()
    return member
