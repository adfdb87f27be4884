"""Where a member listens, and how it and others find each other: its sockets, its sources of seeds, its host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from phalanx.common.ids import MemberId
from phalanx.common.view import MembersView
from phalanx.machine.inputs import SeedsFound
from phalanx.net.forking import close_inherited, tell_forks
from phalanx.runtime.discovery.neighbours import Neighbours
from phalanx.runtime.discovery.port_range import listen
from phalanx.runtime.discovery.seed_watch import SeedWatch
from phalanx.runtime.settings.config import Config


class Presence:
    """The presence of one member in the network, over all its incarnations."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._servers: list[asyncio.Server] = []
        self._seed_watch: SeedWatch | None = None
        """The sources of seeds; None: it has none, or does not listen yet."""
        self._neighbours: Neighbours | None = None
        """The search for other members on this host; None: this member does not listen yet."""
        tell_forks(self)

    async def open(
        self, config: Config, accept: Callable[[], asyncio.Protocol], feed: Callable[[SeedsFound], None]
    ) -> int:
        """Listen, and let others on this host know. Return the port. Raise `UsageError` if it cannot listen there."""
        self._servers = await listen(self._loop, config, accept)
        port: int = self._servers[0].sockets[0].getsockname()[1]
        self._neighbours = Neighbours(config.cluster, config.address(port), config.find_secret())
        self._neighbours.announce()
        if config.has_seed_sources:
            self._seed_watch = SeedWatch(config, config.address(port), port, feed)
        return port

    def look_for_seeds(
        self, view: Callable[[], MembersView | None], call: Callable[[Callable[[], None]], None]
    ) -> None:
        """Ask the sources of seeds for a new incarnation, as `SeedWatch.begin` does."""
        if self._seed_watch is not None:
            self._seed_watch.begin(view, call)

    def warn_of_others(self, this: MemberId) -> None:
        """Log a warning if this host has another cluster of the same name: this member has formed one."""
        if self._neighbours is not None:
            self._neighbours.warn_of_others(this)

    def on_forked(self) -> None:
        """Close the copies of the listening sockets in a forked process: the port must be free after the parent."""
        if not self._loop.is_closed():
            close_inherited(each.fileno() for server in self._servers for each in server.sockets)

    def close(self) -> None:
        """Listen no longer, and look for nobody."""
        if self._seed_watch is not None:
            self._seed_watch.end()
        for server in self._servers:
            server.close()
        if self._neighbours is not None:
            self._neighbours.withdraw()
