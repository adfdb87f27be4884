"""What can go wrong in a simulated history: kinds of faults, and one fault as a value."""

from __future__ import annotations

import enum

import msgspec

from phalanx.common.ids import Millis

MASTER = -1
"""Instead of a host's number: the master at the time of the fault."""
OWNER, SOURCE, DESTINATION, OTHER_REPLICA = -2, -3, -4, -5
"""The same, for a fault that waits for a migration: who sends the data; who holds the index that changes hands (the owner
where nobody does); who gets it; and a backup that takes no other part (the source, where there is no other)."""
BEFORE, INSIDE, AFTER, CARRYING = "before", "inside", "after", "carrying"
"""Points of an input at which memory runs out: before the node has it, while it gathers its effects, when it has handled it,
and while the effects are carried out."""
BY_OPERATOR = "operator"
"""How all processes end: an operator stops the cluster (`phalanx stop --all`)."""


class FaultKind(enum.StrEnum):
    CRASH = "crash"
    """The process ends without a word. `lasts_ms`: starts again after that; 0: not before the end of the faults."""
    OUTAGE = "outage"
    """All processes end without a word (`what` is empty), or their machines lose power (POWER), or they are told to leave (LEAVE) or to
    stop (STOP), each for itself or all by their master (BY_OPERATOR), and start again within `lasts_ms`, in an order that `nth` says."""
    POWER = "power"
    """As CRASH, and the machine loses power: of what it had not synced, its disk has this and that, or nothing."""
    CRASH_WRITING = "crash-writing"
    """As CRASH, within the `nth` block from now on that the process writes to its folder (`what`: "block"), or that begins a segment
    ("segment"); or the process crashes, and its next one within its first block ("start"). In some, power is cut as well."""
    ROT = "rot"
    """As CRASH, and something of the host's folder is not as it was, although it was synced: some bits ("bits"), a sector, which is
    zero ("sector"), a segment, which cannot be read ("segment"), or all of it is gone ("folder"). A folder that a process refuses is
    emptied by an operator, or (`nth` is not 0) cut where it is damaged, if what is before that is complete."""
    FOLDER_OLD = "folder-old"
    """The host's folder is copied. After `nth` milliseconds the process ends, and starts again after `lasts_ms` with that copy."""
    FOLDER_COPY = "folder-copy"
    """The process on `other` ends, and starts again after `lasts_ms` with a copy of the folder of `host`, in which a member lives. An
    operator empties the folder of the one that is refused."""
    FOLDER_SWAP = "folder-swap"
    """The processes of both hosts end, and start again after `lasts_ms`, each with the folder of the other one."""
    CRASH_ON = "crash-on"
    """As CRASH, when the `nth` message of the type named `what` has been handled by the host."""
    CRASH_SENDING = "crash-sending"
    """As CRASH, when the `nth` message of the type named `what` was sent: in the middle of telling several members."""
    CUT_ON = "cut-on"
    """When the `nth` message of the type named `what` was handled or sent by the host: as CUT, from all others."""
    PAUSE_ON = "pause-on"
    """As CUT_ON, but the process does nothing for `lasts_ms`."""
    LEAVE = "leave"
    """The member is asked to leave in good order. `lasts_ms`: as for CRASH, from when it has left."""
    STOP = "stop"
    """As LEAVE, and the member comes back with what it has in its folder."""
    DEMOTE = "demote"
    """The member is asked to hold no data any more, and after `lasts_ms` (0: at the end of the faults) to hold some again."""
    JOIN = "join"
    """A host that was not running starts."""
    LOSE = "lose"
    """All connections between two hosts break once."""
    LOSE_ONE_WAY = "lose-one-way"
    """The connections from `host` to `other` break once."""
    CUT = "cut"
    """As LOSE, and new connections are refused for `lasts_ms`."""
    CUT_ONE_WAY = "cut-one-way"
    """What `host` sends to `other` vanishes for `lasts_ms`; the other way everything arrives."""
    DESERT = "desert"
    """All connections of the host break, and for `lasts_ms` its machine answers that no process listens, although the member
    lives: as a forwarder of its port does that is started again."""
    CUT_GROUP = "cut-group"
    """As CUT, between the hosts whose bits are set in `nth` and all others."""
    CLOCK_STEP = "clock-step"
    """The host's clock jumps `nth` milliseconds ahead."""
    CLOCK_BACK = "clock-back"
    """The wall clock of the host's machine is set: `nth` milliseconds ahead, or (negative) back. It counts where a process starts there
    after the machine was off."""
    LAG = "lag"
    """Messages between two hosts take `nth` milliseconds longer, for `lasts_ms`."""
    BACKUPS = "backups"
    """An administrator sets how many backups maps have: `nth`. At the end of the faults it is what it was."""
    BOUND = "bound"
    """An administrator bounds the workload's map: `nth` entries, 0: any number."""
    DIVIDE = "divide"
    """An administrator asks for `nth` times as many partitions."""
    MEMORY = "memory"
    """The process has no memory left at one of its next inputs, at the point `what` (BEFORE to CARRYING), for the `nth` effect:
    it ends as in a crash. `lasts_ms`: as for CRASH."""
    DISK = "disk"
    """What members on the host record within `lasts_ms` is missing in its event log. Nothing else is another history."""
    DISK_FAILS = "disk-fails"
    """Nothing more is written to the folder of the member; it is told so. `lasts_ms`: as for CRASH, from when it has left. If processes
    begin with what is in folders, an operator has to say that this one can be used again."""
    DISK_FULL = "disk-full"
    """The folder of the member has no room for growth for `lasts_ms`; it is told so."""
    LOSE_LOG = "lose-log"
    """Incarnations that begin on the host from now on have no event log."""
    PAUSE = "pause"
    """The process does nothing for `lasts_ms`; what arrives waits."""


MIGRATION_KINDS = (
    "any", "move-owner", "move-backup", "copy", "shift-up", "shift-down", "shift-up-down",
)  # fmt: skip
"""What a fault can wait for: `any` one, or one of a kind; a move of the owner's replica or of a backup's."""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that goes wrong, or one change of the cluster."""

    at_ms: Millis
    kind: FaultKind
    host: int
    other: int = -1
    lasts_ms: Millis = 0
    what: str = ""
    nth: int = 0
    during: str = ""
    """Wait until a migration of this kind is ordered, and be about it: see `MIGRATION_KINDS`; empty: for none."""
    is_apart: bool = False
    """Wait for a migration in which the host is not the master."""
