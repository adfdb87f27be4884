"""Everything a member process is told: where it listens, whom it asks, and what its machines need (`NodeConfig`)."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import msgspec

from phalanx.common.config import NodeConfig
from phalanx.common.errors import UsageError
from phalanx.common.ids import Address, parse_address
from phalanx.wire.codec import DEFAULT_MAX_FRAME_BYTES

DEFAULT_PORT = 5701


class Config(NodeConfig, frozen=True, kw_only=True):
    """Settings of one member. Every field has a default: `Config()` forms a cluster of one on 127.0.0.1:5701."""

    host: str = "127.0.0.1"
    """Where to listen. Loopback only: other addresses need authentication, which this version does not have."""

    port: int = DEFAULT_PORT
    """0: any free port; see `Member.address` for the one that was taken."""

    event_log: str | None = None
    """A folder for this member's events, one JSON object a line; None: log lines only."""

    legacy_member_list_format: bool = False
    """Log member lists without size and version."""

    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
    """The longest message taken from or sent to anybody. Must exceed the largest value; the same everywhere."""

    def __post_init__(self) -> None:
        super().__post_init__()
        seeds: Sequence[str] = self.seeds
        if isinstance(seeds, str):
            raise UsageError(f"seeds: {seeds!r} is one text; give a list of addresses, such as ['127.0.0.1:5701']")
        msgspec.structs.force_setattr(self, "seeds", tuple(parse_address(seed) for seed in seeds))
        if not 0 <= self.port < 65536:
            raise UsageError(f"port: {self.port} is not between 0 and 65535")
        if not _is_loopback(self.host):
            raise UsageError(
                f"host: {self.host!r} is not a loopback address; members do not authenticate each other yet, so they "
                f"listen on 127.0.0.1, ::1 or localhost only"
            )
        if self.max_frame_bytes < self.max_bulk_bytes + 65_536:
            raise UsageError(
                f"max_frame_bytes: {self.max_frame_bytes} is too small: give at least {self.max_bulk_bytes + 65_536}, "
                f"for the largest entry (max_value_bytes {self.max_value_bytes} and max_key_bytes "
                f"{self.max_key_bytes}) and for requests with many entries"
            )

    def address(self, port: int) -> Address:
        """This member's address once its port is known."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return Address(f"{host}:{port}")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
