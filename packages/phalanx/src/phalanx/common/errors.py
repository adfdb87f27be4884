"""Errors, by whose fault they are and what the caller can do.

* `UsageError`: you. Correct the call, the option or the configuration.
* `ProtocolError`: the peer sent something that breaks the protocol. That connection is dropped, nothing else.
* `UnavailableError`: the cluster cannot do it now, and has not done it. Retrying is safe.
* `ClientClosed`: you have closed the client, or your member has ended. Nothing was changed; calling again cannot work, another
  client or member can.
* `NotEnoughMembers`: a map refuses calls because the cluster is smaller than its setting asks for. Nothing was changed.
* `GridFull`: a member has no memory for what the call would add. Nothing was changed. Remove, add members, or raise limits.
* `JournalOverrun`, `JournalLineageChanged`: events of a journal are no longer there. Read the map, and begin again.
* `LockTimeout`, `LockLost`, `StaleToken`: a lock was not granted in time, is no longer held, or has a new holder.
* `IndeterminateWrite`: the write was perhaps applied. Read before you decide.
* `InvariantViolation`: us. The member stops, because its state is broken.

On the wire an error is one of the closed codes of `ErrorCode` and a sentence.
"""

from __future__ import annotations

import enum


class PhalanxError(Exception):
    """Base of all errors that Phalanx raises on purpose.

    `ended_members`: two members that ended while they served the call, so that it was not asked of another: a program must not
    repeat it by itself. Empty: nothing of that kind.
    """

    ended_members: tuple[str, ...] = ()


class UsageError(PhalanxError, ValueError):
    """The caller asked for something that cannot be done as asked. The message says what to change."""


class EntryTooLarge(UsageError):
    """A key or a value is over the configured limit. Nothing was stored."""


class SerializationError(UsageError):
    """A key or value cannot be stored. The message says which part of it, why, and what to use instead."""


class CorruptDataError(PhalanxError):
    """Stored bytes are not valid: broken, or written by a release that knows more types. Not the caller's fault."""


class UnknownSchema(CorruptDataError):
    """A stored Compact object cannot be read without its schema, which is not known here, or not to the cluster. The stored bytes are
    as they were.

    `schema_id`: the id of the schema.
    """

    def __init__(self, schema_id: int, text: str) -> None:
        super().__init__(text)
        self.schema_id = schema_id

    def __reduce__(self) -> tuple[type, tuple[int, str]]:
        return type(self), (self.schema_id, str(self))


class StoredTypeError(PhalanxError):
    """A stored key or value is not of the type with which this program uses the map. Nothing was changed."""


class UpdateFailed(UsageError):
    """A function refused some entries of an update of many. These are as they were; the others were changed.

    `changed`: how many were changed; `failed`: how many were not; `key`: the first of these.
    """

    def __init__(self, changed: int, failed: int, key: object, text: str) -> None:
        super().__init__(text)
        self.changed = changed
        self.failed = failed
        self.key = key

    def __reduce__(self) -> tuple[type, tuple[int, int, object, str]]:
        return type(self), (self.changed, self.failed, self.key, str(self))


class ProtocolError(PhalanxError):
    """A peer sent bytes or a message that breaks the protocol. Its connection is closed."""


class OutOfMemory(ProtocolError):
    """There is no memory for what a peer sent. Its connection is closed, and nothing of it was done."""


class UnavailableError(PhalanxError):
    """The cluster could not serve the call in time, and has changed nothing. Retrying is safe."""


class NotEnoughMembers(UnavailableError):
    """The map is protected, and its side of the cluster has too few members or not the majority. Nothing was changed."""


MEMBER_STOPPED = "this member stopped"
"""The text of the error, of the code `UNAVAILABLE`, with which a member that has ended ends the calls of its own program."""


class ClientClosed(PhalanxError):
    """This program has closed the client, or its member has ended, and the call has changed nothing. Calling again cannot work:
    use another client, or start another member."""


class GridFull(PhalanxError):
    """A member that would hold what the call adds has reached its memory limit. Nothing was changed; reads and removals
    work."""


class ConnectError(UnavailableError):
    """No member could be reached, or the member that answered refused the connection."""


class TwoClusters(ConnectError):
    """The addresses that were given belong to two clusters."""


class JoinFailed(UnavailableError):
    """A member could not join the cluster through any of its seeds."""


class LockTimeout(PhalanxError, TimeoutError):
    """Others held the lock, or all permits of the semaphore, for as long as the caller wanted to wait."""


class LockLost(PhalanxError):
    """The caller does not hold the lock any more: its lease ended before it was renewed, or another side's holder stays."""


class StaleToken(PhalanxError):
    """A write came with a fencing token that is older than one that the key has seen, or whose lock is not held any more.
    Nothing was changed."""


class IndeterminateWrite(PhalanxError):
    """A write was sent and its outcome is unknown: it was perhaps applied."""


class JournalNotEnabled(UsageError):
    """The map has no journal: nothing tells what happened to it."""


class JournalOverrun(PhalanxError):
    """A reader of a journal is too late: `missed` events behind the last one that it read are not kept any more."""

    def __init__(self, partition: int, missed: int, text: str) -> None:
        super().__init__(text)
        self.partition = partition
        self.missed = missed

    def __reduce__(self) -> tuple[type, tuple[int, int, str]]:
        return type(self), (self.partition, self.missed, str(self))


class JournalLineageChanged(PhalanxError):
    """A reader's position is not in the journal: the journal began again, or continued from another history.

    `void`: how many of the events that the reader has read are not in the journal's present history; None: unknown.
    """

    def __init__(self, partition: int, void: int | None, text: str) -> None:
        super().__init__(text)
        self.partition = partition
        self.void = void

    def __reduce__(self) -> tuple[type, tuple[int, int | None, str]]:
        return type(self), (self.partition, self.void, str(self))


class InvariantViolation(PhalanxError):
    """Something that must always hold does not. A defect of Phalanx itself; the message carries the facts."""


class MemberFailed(PhalanxError):
    """This member has met something unexpected and ended at once, as in a crash; its cause is the error. Others take over."""


class DiskLost(MemberFailed):
    """The disk of this member has failed, so it has left its cluster in good order. Others hold all that it had."""


class ErrorCode(enum.IntEnum):
    """Why a member refused a call. What the caller does next depends on the code alone."""

    NOT_OWNER = 1
    """This member does not own the partition by its table: look for a newer table, then call the owner."""
    NOT_READY = 2
    """No owner can answer at this moment (no table yet, taking over, not joined): call again a little later."""
    TOO_LARGE = 3
    """The key or value is over the limit: the call is wrong and will stay wrong."""
    INVALID = 4
    """The request makes no sense to this member: the call is wrong and will stay wrong."""
    OWNERSHIP_LOST = 5
    """The write was applied here, then ownership moved before the backups confirmed: ask the new owner."""
    UNAVAILABLE = 6
    """Given to the caller by its own router: no owner could be asked in time. By an owner: too many lock requests wait. Nothing
    was changed."""
    INDETERMINATE = 7
    """Given to the caller by its own router: a write was sent and its outcome is unknown. By an owner: it was applied, or
    is over, and what became of it is forgotten."""
    NOT_ENOUGH_MEMBERS = 8
    """The map is protected, and this side of the cluster is too small: nothing was changed, and no other member owns the key."""
    GRID_FULL = 10
    """A member that holds the partition has no memory for what the write would add: nothing was changed, and it stays so
    until something is removed or moves away."""
    STALE_TOKEN = 11
    """The fencing token of the write is older than one that is known of its key: nothing was changed, and never will be."""
