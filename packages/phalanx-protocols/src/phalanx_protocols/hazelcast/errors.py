"""Errors as this protocol sends them: a code, by which clients decide whether to try again, a Java class, and a sentence."""

from __future__ import annotations

import enum
from typing import Final

from phalanx.common.errors import (
    ClientClosed,
    EntryTooLarge,
    GridFull,
    IndeterminateWrite,
    NotEnoughMembers,
    PhalanxError,
    StaleToken,
    UnavailableError,
    UsageError,
)
from phalanx.maps.answer_budget import AnswerTooLarge
from phalanx_protocols.hazelcast.frames import (
    BEGIN_FRAME,
    END_FRAME,
    LAST_END_FRAME,
    answer_head,
    frame,
    int_field,
    text_frame,
)

ERROR_TYPE: Final = 0
"""The type of an answer that is an error."""


class Code(enum.IntEnum):
    """Codes of the protocol that are used here."""

    AUTHENTICATION = 3
    HAZELCAST = 18
    ILLEGAL_ARGUMENT = 23
    ILLEGAL_MONITOR_STATE = 26
    NOT_ENOUGH_MEMBERS = 42
    RETRYABLE = 46
    UNSUPPORTED = 61
    TOO_LARGE = 69
    MAP_FULL = 43
    INDETERMINATE = 80


CLASSES: Final = {
    Code.AUTHENTICATION: "com.hazelcast.client.AuthenticationException",
    Code.HAZELCAST: "com.hazelcast.core.HazelcastException",
    Code.ILLEGAL_ARGUMENT: "java.lang.IllegalArgumentException",
    Code.ILLEGAL_MONITOR_STATE: "java.lang.IllegalMonitorStateException",
    Code.NOT_ENOUGH_MEMBERS: "com.hazelcast.splitbrainprotection.SplitBrainProtectionException",
    Code.RETRYABLE: "com.hazelcast.spi.exception.RetryableHazelcastException",
    Code.UNSUPPORTED: "java.lang.UnsupportedOperationException",
    Code.TOO_LARGE: "com.hazelcast.client.impl.protocol.exception.MaxMessageSizeExceeded",
    Code.MAP_FULL: "com.hazelcast.map.ReachedMaxSizeException",
    Code.INDETERMINATE: "com.hazelcast.core.IndeterminateOperationStateException",
}


class RefusedCall(Exception):
    """A request is refused. Its connection is unharmed."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


def refusal_of(error: Exception) -> RefusedCall:
    """Return the refusal for an error of the grid, or of this program (`Code.HAZELCAST`), of which clients get the class alone."""
    if isinstance(error, RefusedCall):
        return error
    if not isinstance(error, PhalanxError):
        return RefusedCall(
            Code.HAZELCAST, f"the call failed in this member ({type(error).__name__}); its log says more"
        )
    if isinstance(error, EntryTooLarge | AnswerTooLarge):
        code = Code.TOO_LARGE
    elif isinstance(error, UsageError):
        code = Code.ILLEGAL_ARGUMENT
    elif isinstance(error, StaleToken):
        code = Code.ILLEGAL_MONITOR_STATE
    elif isinstance(error, IndeterminateWrite):
        code = Code.INDETERMINATE
    elif isinstance(error, NotEnoughMembers):
        code = Code.NOT_ENOUGH_MEMBERS
    elif isinstance(error, GridFull):
        code = Code.MAP_FULL
    elif isinstance(error, UnavailableError | ClientClosed):
        # Its clients repeat what is retryable.
        code = Code.INDETERMINATE if error.ended_members else Code.RETRYABLE
    else:
        code = Code.ILLEGAL_ARGUMENT
    return RefusedCall(code, str(error))


def error_message(number: int, refusal: RefusedCall) -> bytes:
    """Return the answer to the request of that number that tells a refusal."""
    return b"".join(
        (
            answer_head(ERROR_TYPE, number, is_last=False),
            BEGIN_FRAME,
            BEGIN_FRAME,
            frame(int_field(refusal.code)),
            text_frame(CLASSES[refusal.code]),
            text_frame(str(refusal)),
            BEGIN_FRAME,
            END_FRAME,
            END_FRAME,
            LAST_END_FRAME,
        )
    )
