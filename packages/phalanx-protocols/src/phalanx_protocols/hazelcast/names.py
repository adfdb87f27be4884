"""What clients can ask for, by number: names for refused requests, so that people know what they were."""

from __future__ import annotations

from typing import Final

SERVICES: Final = {
    0x00: "Client", 0x01: "Map", 0x02: "MultiMap", 0x03: "Queue", 0x04: "Topic", 0x05: "List", 0x06: "Set", 0x07: "FencedLock",
    0x08: "ExecutorService", 0x09: "AtomicLong", 0x0A: "AtomicRef", 0x0B: "CountDownLatch", 0x0C: "Semaphore",
    0x0D: "ReplicatedMap", 0x0E: "TransactionalMap", 0x0F: "TransactionalMultiMap", 0x10: "TransactionalSet",
    0x11: "TransactionalList", 0x12: "TransactionalQueue", 0x13: "Cache", 0x14: "XATransaction", 0x15: "Transaction",
    0x16: "ContinuousQuery", 0x17: "Ringbuffer", 0x18: "DurableExecutor", 0x19: "CardinalityEstimator",
    0x1A: "ScheduledExecutor", 0x1B: "DynamicConfig", 0x1C: "FlakeIdGenerator", 0x1D: "PNCounter", 0x1E: "CPGroup",
    0x1F: "CPSession", 0x20: "MC", 0x21: "Sql", 0x22: "CPSubsystem", 0x23: "CPMap", 0x24: "VectorCollection", 0xFD: "Experimental",
    0xFE: "Jet",
}  # fmt: skip
"""The second byte of a message's type, from above, to its service."""

MESSAGES: Final = {
    0x000600: "addPartitionLostListener", 0x000700: "removePartitionLostListener", 0x000900: "addDistributedObjectListener",
    0x000D00: "deployClasses", 0x001100: "addMigrationListener", 0x001200: "removeMigrationListener", 0x001300: "sendSchema",
    0x001400: "fetchSchema", 0x001500: "sendAllSchemas", 0x001600: "tpcAuthentication", 0x001700: "addCPGroupViewListener",
    0x011400: "addInterceptor", 0x011500: "removeInterceptor", 0x011600: "addEntryListenerToKeyWithPredicate",
    0x011700: "addEntryListenerWithPredicate", 0x011800: "addEntryListenerToKey", 0x011900: "addEntryListener",
    0x011B00: "addPartitionLostListener", 0x011C00: "removePartitionLostListener", 0x012000: "loadAll",
    0x012100: "loadGivenKeys", 0x012F00: "submitToKey", 0x012600: "keySetWithPredicate", 0x012700: "valuesWithPredicate",
    0x012800: "entriesWithPredicate", 0x013100: "executeWithPredicate",
    0x013400: "keySetWithPagingPredicate", 0x013500: "valuesWithPagingPredicate", 0x013600: "entriesWithPagingPredicate",
    0x013700: "fetchKeys", 0x013800: "fetchEntries", 0x013900: "aggregate", 0x013A00: "aggregateWithPredicate",
    0x013B00: "project", 0x013C00: "projectWithPredicate", 0x013D00: "fetchNearCacheInvalidationMetadata",
    0x013E00: "removeAll", 0x013F00: "addNearCacheInvalidationListener", 0x014000: "fetchWithQuery", 0x014100: "eventJournalSubscribe",
    0x014200: "eventJournalRead", 0x014800: "replaceAll", 0x014900: "putAllWithMetadata",
}  # fmt: skip
"""Messages of the two services that are served in part, to the names of those that are not."""

WHY: Final = {
    **dict.fromkeys(
        (0x011600, 0x011700, 0x011800, 0x011900), "the grid tells no events of entries to clients; use a map's journal"
    ),
    **dict.fromkeys(
        (0x013100, 0x013E00, 0x012600, 0x012700, 0x012800),
        "members evaluate no predicates of clients: filter what entrySet gives",
    ),
    0x013F00: "near caches are not told what has changed: use the client without one",
    **dict.fromkeys((0x011400, 0x011500), "interceptors are code of the application, which does not run in members"),
    **dict.fromkeys((0x012000, 0x012100), "maps have no store to load from"),
}
"""What to do instead, where that is known."""


def name_of(kind: int) -> str:
    """Return the name of a message of this type, as far as it is known."""
    service = SERVICES.get(kind >> 16 & 0xFF)
    if service is None or kind >> 24:
        return f"message 0x{kind & 0xFFFFFFFF:06X}"
    name = MESSAGES.get(kind)
    return f"{service}.{name}" if name is not None else f"{service} (message 0x{kind:06X})"


def why_unsupported(kind: int) -> str:
    """Return the sentence that refuses a message of this type."""
    why = WHY.get(kind)
    return f"{name_of(kind)} is not supported by Phalanx, which serves key-value maps{': ' + why if why else ''}"
