"""Phalanx: an in-memory data grid for Python.

import phalanx
member = await phalanx.start_member(phalanx.Config())          # embed a member in a service
async with phalanx.connect("127.0.0.1:5701") as grid: ...      # or connect to one, with asyncio
with phalanx.Client("127.0.0.1:5701") as grid: ...             # or without
"""

from phalanx.client.aio import AsyncClient, connect
from phalanx.client.sync import Client
from phalanx.common.errors import (
    ConnectError,
    EntryTooLarge,
    IndeterminateWrite,
    InvariantViolation,
    JoinFailed,
    PhalanxError,
    ProtocolError,
    UnavailableError,
    UsageError,
)
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
    "Member",
    "PhalanxError",
    "ProtocolError",
    "UnavailableError",
    "UsageError",
    "connect",
    "start_member",
]
