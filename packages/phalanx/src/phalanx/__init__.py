"""Phalanx: an in-memory data grid for Python.

`start_member` embeds a member of the cluster in this process, `connect` is the asyncio client, `Client` the blocking
one; each has `map(name)`, a dict that the whole cluster shares.

A client, or what embeds a member, is imported when it is first asked for: to a member that starts, to a command and to each new
worker of Spark the other one would be a good part of the start.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from phalanx.common.errors import (
    ClientClosed,
    ConnectError,
    CorruptDataError,
    DiskLost,
    EntryTooLarge,
    GridFull,
    IndeterminateWrite,
    InvariantViolation,
    JoinFailed,
    JournalLineageChanged,
    JournalNotEnabled,
    JournalOverrun,
    LockLost,
    LockTimeout,
    MemberFailed,
    NotEnoughMembers,
    OutOfMemory,
    PhalanxError,
    ProtocolError,
    SerializationError,
    StaleToken,
    StoredTypeError,
    TwoClusters,
    UnavailableError,
    UnknownSchema,
    UpdateFailed,
    UsageError,
)
from phalanx.common.map_config import MapConfig
from phalanx.common.updates import ABSENT, REMOVE, UNCHANGED, Update

if TYPE_CHECKING:
    from phalanx.client.aio import AsyncClient, connect
    from phalanx.client.blocking.sync_map import SyncMap
    from phalanx.client.sync import Client
    from phalanx.maps.async_map import AsyncMap
    from phalanx.runtime.member import Member, start_member
    from phalanx.runtime.member_thread import MemberThread, start_member_in_thread
    from phalanx.runtime.settings.config import Config
    from phalanx.runtime.settings.load_config import load_config

__version__ = "0.1.0"

__all__ = [
    "ABSENT",
    "REMOVE",
    "UNCHANGED",
    "AsyncClient",
    "AsyncMap",
    "Client",
    "ClientClosed",
    "Config",
    "ConnectError",
    "CorruptDataError",
    "DiskLost",
    "EntryTooLarge",
    "GridFull",
    "IndeterminateWrite",
    "InvariantViolation",
    "JoinFailed",
    "JournalLineageChanged",
    "JournalNotEnabled",
    "JournalOverrun",
    "LockLost",
    "LockTimeout",
    "MapConfig",
    "Member",
    "MemberFailed",
    "MemberThread",
    "NotEnoughMembers",
    "OutOfMemory",
    "PhalanxError",
    "ProtocolError",
    "SerializationError",
    "StaleToken",
    "StoredTypeError",
    "SyncMap",
    "TwoClusters",
    "UnavailableError",
    "UnknownSchema",
    "Update",
    "UpdateFailed",
    "UsageError",
    "connect",
    "load_config",
    "start_member",
    "start_member_in_thread",
]

_LATER = {
    "AsyncClient": "phalanx.client.aio",
    "AsyncMap": "phalanx.maps.async_map",
    "Client": "phalanx.client.sync",
    "SyncMap": "phalanx.client.blocking.sync_map",
    "connect": "phalanx.client.aio",
    "Config": "phalanx.runtime.settings.config",
    "load_config": "phalanx.runtime.settings.load_config",
    "Member": "phalanx.runtime.member",
    "MemberThread": "phalanx.runtime.member_thread",
    "start_member": "phalanx.runtime.member",
    "start_member_in_thread": "phalanx.runtime.member_thread",
}


_PACKAGES = ("archive", "integrations", "spark", "testing")
"""What programs import by themselves."""

if not TYPE_CHECKING:  # a checker of types would take every name for one that is there

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_LATER[name]), name)
        return value


def __dir__() -> list[str]:
    imported = (name for name in globals() if name in _PACKAGES or name.startswith("__"))
    return sorted({*__all__, *imported})
