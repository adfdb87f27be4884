"""Phalanx: an in-memory data grid for Python.

`start_member` embeds a member of the cluster in this process, `connect` is the asyncio client, `Client` the blocking
one; each has `map(name)`, a dict that the whole cluster shares.
"""

from phalanx.client.aio import AsyncClient, connect
from phalanx.client.sync import Client
from phalanx.common.errors import (
    ConnectError,
    EntryTooLarge,
    IndeterminateWrite,
    InvariantViolation,
    JoinFailed,
    NotEnoughMembers,
    PhalanxError,
    ProtocolError,
    UnavailableError,
    UsageError,
)
from phalanx.common.map_settings import MapConfig
from phalanx.runtime.config import Config
from phalanx.runtime.member import Member, start_member

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "Client",
    "Config",
    "ConnectError",
    "EntryTooLarge",
    "IndeterminateWrite",
    "InvariantViolation",
    "JoinFailed",
    "MapConfig",
    "Member",
    "NotEnoughMembers",
    "PhalanxError",
    "ProtocolError",
    "UnavailableError",
    "UsageError",
    "connect",
    "start_member",
]
