"""Feed a member with what its sources of seeds give: often while it is alone, from time to time later (PX-41).

Look-ups run in threads of their own (`net/seed_lookups.py`); the member's loop only looks whether one has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

from phalanx.common.ids import Address, host_and_port
from phalanx.common.seeds import parse_seed, sources_of
from phalanx.common.view import MembersView
from phalanx.machine.inputs import SeedsFound
from phalanx.net.addresses import is_of_this_machine, is_wildcard, normalise
from phalanx.net.seed_lookups import FoundSeeds, SeedLookups
from phalanx.runtime.logs.safe_logger import SafeLogger
from phalanx.runtime.settings.config import Config

logger = SafeLogger("phalanx.member")

POLL_S = 0.2
"""Between two looks whether a look-up has ended."""
JOINING_EVERY_S = 1.0
ALONE_EVERY_S = 2.0
JOINED_EVERY_S = 30.0


class SeedWatch:
    """The sources of one member, over all its incarnations."""

    def __init__(self, config: Config, own: Address, port: int, feed: Callable[[SeedsFound], None]) -> None:
        self._lookups = SeedLookups(sources_of(map(parse_seed, config.seeds)))
        self._own, self._port = own, port
        self._listens_everywhere = is_wildcard(config.host)
        self._aliases = config.own_addresses(port)
        self._feed = feed
        self._asked_at = float("-inf")
        self._latest: SeedsFound | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._has_warned = False

    def begin(self, view: Callable[[], MembersView | None], call: Callable[[Callable[[], None]], None]) -> None:
        """Begin to look for a new incarnation, which gets the known addresses at once. `call`: runs a callback of the loop safely."""
        self.end()
        if self._latest is not None:
            self._feed(self._latest)
        self._asked_at = float("-inf")
        self._look(view, call)

    def end(self) -> None:
        """Stop looking. Nothing waits for the end of a look-up under way."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, view: Callable[[], MembersView | None], call: Callable[[Callable[[], None]], None]) -> None:
        now = monotonic()
        if now - self._asked_at >= _pause_s(view()):
            self._asked_at = now
            self._lookups.ask()
        self._timer = asyncio.get_running_loop().call_later(POLL_S, call, lambda: self._look(view, call))
        if (found := self._lookups.take_changes()) is not None:
            self._tell(found)

    def _tell(self, found: FoundSeeds) -> None:
        addresses = sorted({self._own if self._is_own(address) else address for address in found.addresses})
        self._latest = SeedsFound(tuple(addresses), found.failures)
        if not self._has_warned and is_of_this_machine(host_and_port(self._own)[0]):
            self._warn_of_loopback(addresses)
        self._feed(self._latest)

    def _is_own(self, address: Address) -> bool:
        """Return whether this member itself listens at an address that was found, so that it does not wait for itself."""
        if normalise(address) in self._aliases or address == self._own:
            return True
        host, port = host_and_port(address)
        return self._listens_everywhere and port == self._port and is_of_this_machine(host)

    def _warn_of_loopback(self, found: list[Address]) -> None:
        own_host = host_and_port(self._own)[0]
        if not own_host.startswith("127.") and own_host not in ("::1", "localhost"):
            return
        elsewhere = [each for each in found if not is_of_this_machine(host_and_port(each)[0])]
        if elsewhere:
            self._has_warned = True
            logger.warning(
                "the seeds are on other machines (%s), where %s means those machines themselves: give --host or --advertise",
                elsewhere[0], self._own,
            )  # fmt: skip


def _pause_s(view: MembersView | None) -> float:
    if view is None:
        return JOINING_EVERY_S
    return ALONE_EVERY_S if len(view.members) == 1 else JOINED_EVERY_S
