"""What a member lends to its HTTP port: itself, and the figures that it counts as it works."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from phalanx.common.ids import Address, MemberId, Millis, Target
from phalanx.maps.async_map import AsyncMap
from phalanx.node.node import Node
from phalanx.runtime.call_statistics import BUCKETS_S, Calls, CallStatistics, MeasuredInbound
from phalanx.runtime.config import Config
from phalanx.runtime.embedded import EmbeddedCaller
from phalanx.runtime.http_settings import load_certificate, read_token
from phalanx.runtime.inbound import Inbound
from phalanx.runtime.optional_packages import require_http
from phalanx.runtime.overload import Overload
from phalanx.runtime.refused_peers import Strangers
from phalanx.runtime.slow_turns import SlowTurns

if TYPE_CHECKING:
    from phalanx.http.server import HttpServer


class Lender(Protocol):
    """What of a member is lent (`runtime.member.Member`)."""

    node: Node
    caller: EmbeddedCaller
    overload: Overload
    refused_strangers: Strangers
    slow_turns: SlowTurns
    event_counts: Counter[str]
    inbound: set[Inbound]

    @property
    def id(self) -> MemberId: ...
    @property
    def address(self) -> Address: ...
    @property
    def is_over(self) -> bool: ...
    @property
    def has_started(self) -> bool: ...
    @property
    def is_leaving(self) -> bool: ...
    def map(self, name: str) -> AsyncMap[Any, Any]: ...
    def now(self) -> Millis: ...


class LentMember:
    """A member as its HTTP port sees it (`http.served_member.ServedMember`), with its figures (`http.metrics.Sources`)."""

    call_buckets_s: Final = BUCKETS_S

    def __init__(self, member: Lender, statistics: CallStatistics) -> None:
        self._member = member
        self._statistics = statistics

    @property
    def member(self) -> LentMember:
        return self

    @property
    def node(self) -> Node:
        return self._member.node

    @property
    def id(self) -> MemberId:
        return self._member.id

    @property
    def address(self) -> Address:
        return self._member.address

    @property
    def is_over(self) -> bool:
        return self._member.is_over

    @property
    def has_started(self) -> bool:
        return self._member.has_started

    @property
    def is_leaving(self) -> bool:
        return self._member.is_leaving

    def map(self, name: str) -> AsyncMap[Any, Any]:
        return self._member.map(name)

    def now(self) -> Millis:
        return self._member.now()

    def ask(self, to: Target, make: Any, *fields: Any, within_ms: Millis) -> asyncio.Future[Any]:
        """Send a request to this member or another, and return the future of its reply."""
        caller = self._member.caller
        return caller.call(0, make(caller.next_id(), *fields), within_ms=within_ms, to=to)

    # --- figures ----------------------------------------------------------------------------------------------------

    @property
    def calls(self) -> Mapping[tuple[str, type], Calls]:
        return self._statistics.of

    @property
    def events(self) -> Mapping[str, int]:
        return self._member.event_counts

    @property
    def refusals(self) -> Mapping[str, int]:
        overload = self._member.overload
        return {
            "slow_peer": overload.slow_peers.total,
            "full_backlog": overload.full_backlogs.total,
            "broken_frame": overload.broken_frames.total,
            "no_place": overload.refused_clients.total,
            "crowded_out": overload.crowded_out.total,
            "no_descriptor": overload.descriptor_shortages.total,
            "distrusted": self._member.refused_strangers.total,
        }

    @property
    def slow_turns(self) -> tuple[int, float]:
        return self._member.slow_turns.total, self._member.slow_turns.longest_s

    def connections(self) -> Mapping[str, tuple[int, int, int, int]]:
        count, received, sent = (
            Counter[str](),
            Counter(self._statistics.received_bytes),
            Counter(self._statistics.sent_bytes),
        )
        waiting = Counter[str]()
        for each in self._member.inbound:
            if isinstance(each, MeasuredInbound):
                count[each.kind] += 1
                received[each.kind] += each.received
                sent[each.kind] += each.written
                waiting[each.kind] += each.backlog
        return {kind: (count[kind], received[kind], sent[kind], waiting[kind]) for kind in ("client", "member")}


def make_http_server(member: Lender, config: Config, statistics: CallStatistics) -> HttpServer:
    """Return the server of a member's HTTP port, not started. Raises `UsageError` if a setting or a package is wrong."""
    require_http("http_port")
    from phalanx.http.server import HttpServer  # its packages are an extra

    return HttpServer(
        LentMember(member, statistics),
        config.cluster,
        config.http_host,
        config.http_ports,
        read_token(config.http_token_file) if config.http_token_file is not None else None,
        load_certificate(config.http_certificate_file, config.http_key_file)
        if config.http_certificate_file is not None
        else None,
    )
