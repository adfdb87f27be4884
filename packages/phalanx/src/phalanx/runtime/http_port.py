"""What a member lends to its HTTP port: its figures, which it counts as it works, and a way to ask."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from phalanx.common.ids import Millis, Target
from phalanx.http.served_member import ServedMember
from phalanx.runtime.accepted_connections import AcceptedConnections
from phalanx.runtime.connections.call_statistics import Calls, CallStatistics, MeasuredInbound
from phalanx.runtime.connections.connection_limits import descriptor_limit, http_places
from phalanx.runtime.connections.host_counter import HostCounter
from phalanx.runtime.connections.overload import Overload
from phalanx.runtime.local.embedded import EmbeddedCaller
from phalanx.runtime.settings.config import Config
from phalanx.runtime.settings.http_settings import load_certificate, read_token
from phalanx.runtime.settings.optional_packages import require_http
from phalanx.runtime.statistics.event_figures import EventFigures
from phalanx.runtime.statistics.recent_events import RecentEvents
from phalanx.runtime.statistics.slow_turns import SlowTurns

if TYPE_CHECKING:
    from phalanx.http.server import HttpServer


class Lender(ServedMember, Protocol):
    """What of a member is lent besides (`runtime.member_driver`)."""

    caller: EmbeddedCaller
    overload: Overload
    refused_strangers: HostCounter
    slow_turns: SlowTurns
    event_figures: EventFigures
    recent_events: RecentEvents | None
    accepted: AcceptedConnections


class Figures:
    """The figures of a member, for its HTTP port (`http.metrics.Sources`)."""

    def __init__(self, member: Lender, statistics: CallStatistics) -> None:
        self.member = member
        self._statistics = statistics
        self._recent = member.recent_events or RecentEvents()

    def ask(self, to: Target, make: Any, *fields: Any, within_ms: Millis) -> asyncio.Future[Any]:
        """Send a request to this member or another, and return the future of its reply."""
        caller = self.member.caller
        return caller.call(0, make(caller.next_id(), *fields), within_ms=within_ms, to=to)

    @property
    def calls(self) -> Mapping[tuple[str, type], Calls]:
        return self._statistics.of

    @property
    def events(self) -> Mapping[str, int]:
        return self.member.event_figures.counts

    @property
    def event_figures(self) -> EventFigures:
        return self.member.event_figures

    @property
    def recent(self) -> RecentEvents:
        return self._recent

    @property
    def refusals(self) -> Mapping[str, int]:
        overload = self.member.overload
        return {
            "slow_peer": overload.slow_peers.total,
            "full_backlog": overload.full_backlogs.total,
            "broken_frame": overload.broken_frames.total,
            "no_place": overload.refused_clients.total,
            "crowded_out": overload.crowded_out.total,
            "idle": overload.idle_clients.total,
            "no_descriptor": overload.descriptor_shortages.total,
            "distrusted": self.member.refused_strangers.total,
        }

    @property
    def slow_turns(self) -> tuple[int, float]:
        return self.member.slow_turns.total, self.member.slow_turns.longest_s

    def connections(self) -> Mapping[str, tuple[int, int, int, int]]:
        count, received, sent = (
            Counter[str](),
            Counter(self._statistics.received_bytes),
            Counter(self._statistics.sent_bytes),
        )
        waiting = Counter[str]()
        for each in self.member.accepted.inbound:
            if isinstance(each, MeasuredInbound):
                count[each.kind] += 1
                received[each.kind] += each.received
                sent[each.kind] += each.written
                waiting[each.kind] += each.backlog
        for link in self._statistics.links:
            received["member"] += link.received
            sent["member"] += link.written
            waiting["member"] += link.backlog
        return {kind: (count[kind], received[kind], sent[kind], waiting[kind]) for kind in ("client", "member")}

    @property
    def passed_on(self) -> tuple[int, int]:
        return len(self.member.accepted.passed_on.open), self.member.overload.passed_on.total

    @property
    def links(self) -> int:
        return len(self._statistics.links)


def make_http_server(member: Lender, config: Config, statistics: CallStatistics) -> HttpServer:
    """Return the server of a member's HTTP port, not started. Raises `UsageError` if a setting or a package is wrong."""
    require_http("http_port")
    from phalanx.http.server import HttpServer  # its packages are an extra

    token = read_token(config.http_token_file) if config.http_token_file is not None else None
    # Without a secret, anybody who reaches the grid's port can read the maps anyway. With one, the token protects them here.
    may_look = token is not None or config.find_secret() is None
    return HttpServer(
        Figures(member, statistics),
        config.cluster,
        config.http_host,
        config.http_ports,
        token,
        load_certificate(config.http_certificate_file, config.http_key_file)
        if config.http_certificate_file is not None
        else None,
        http_places(descriptor_limit()),
        may_look=may_look,
        may_change=config.http_allow_changes,
    )
