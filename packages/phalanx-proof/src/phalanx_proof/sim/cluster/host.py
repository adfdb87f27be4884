"""A simulated machine: an address at which one incarnation of a member after another runs, and its connections."""

from __future__ import annotations

from phalanx.common.disk_state import DiskState
from phalanx.common.former_incarnation import DataHandover
from phalanx.common.ids import NEVER, Address, MemberId, Millis, Target
from phalanx.common.invariant import known
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.node.node import Node
from phalanx.wire.messages import Message
from phalanx_proof.sim.cluster.disk import SimDisk
from phalanx_proof.sim.cluster.event_queue import Entry
from phalanx_proof.sim.cluster.folder import SimFolder
from phalanx_proof.sim.cluster.scarce_memory import ScarceMemory


class Host:
    """What runs at one address now, and its connections and clock."""

    def __init__(self, number: int, address: Address) -> None:
        self.number = number
        self.address = address
        self.node: Node | None = None
        """None: no process runs here."""
        self.incarnations = 0
        self.is_leaving = False
        """Whether the member was asked to leave."""
        self.keeps = False
        """Whether it was asked to come back then with what it has in its folder."""
        self.wants_lite: bool | None = None
        """Whether the member was asked to hold no data, or (False) to hold some again; None: neither."""
        self.comes_back: Millis | None = None
        """When a process will be started here; None: nobody plans to."""
        self.kept: DataHandover | None = None
        """What the process keeps from one incarnation to the next."""
        self.table: PartitionTable | None = None
        """The table that was seen in the node last."""
        self.view: MembersView | None = None
        """The view that was seen in the node last."""
        self.wake_at: Millis = -1
        """When `TimePassed` is due; -1: nothing is on the queue."""
        self.is_touched = False
        """Whether the node has taken an input since it was asked for its next deadline."""
        self.next_turn = 0.0
        """When the program at this host calls the map next."""
        self.paused_until: Millis = 0
        self.backlog: list[Entry] = []
        """What arrived during a pause."""
        self.channels: dict[Target, Channel] = {}
        """Peer to the connection that this host opened to it."""
        self.inbound: dict[int, Channel] = {}
        """Connections that others opened to this host, by number."""
        self.clock_ppm = 0
        """By how many millionths its clock runs too fast."""
        self.clock_ahead_ms: Millis = 0
        """By how much its clock has jumped ahead."""
        self.wall_ms: Millis = 0
        """How far its wall clock is ahead of its clock."""
        self.crash_on: list[tuple[str, int, Millis]] = []
        """Crash when so many more messages of a type have been handled, and start again after a time."""
        self.crash_sending: list[tuple[str, int, Millis]] = []
        """As `crash_on`, for messages that were sent."""

        self.shortage: ScarceMemory | None = None
        """Set while its memory is about to run out."""
        self.disk: SimDisk | None = None
        """What the process logs; None: nothing."""
        self.folder: SimFolder | None = None
        """The same, if it outlives the process."""
        self.has_lost_folder = False
        """Whether what an earlier process had in its folder is gone."""
        self.repaired_folders = 0
        """How often an operator has repaired its folder, which was refused."""
        self.crash_back_ms: Millis = 1
        """After how long a process starts again that has ended within a write to its folder."""
        self.partition_count = 0
        """How many partitions the table in its folder has; 0: as configured."""
        self.looks_at_folder_at: Millis = NEVER
        """When its folder is looked at next, because a sync begins or ends then."""
        self.disk_fails_until: Millis = 0
        self.has_lost_logs = False
        """Whether incarnations that begin here have no event log."""
        self.disturb_on: list[tuple[str, int, Millis, bool]] = []
        """As `crash_on`, for messages handled or sent: the host is cut off (True), or its process does nothing for a
        time."""

    def __repr__(self) -> str:
        return f"Host({self.number}, {self.node.this if self.node else 'down'})"

    def clock(self, now: Millis) -> Millis:
        """Return what its clock shows at a time."""
        return now + now * self.clock_ppm // 1_000_000 + self.clock_ahead_ms

    def when(self, shown: Millis) -> Millis:
        """Return the first time at which its clock shows this, or more."""
        at = (shown - self.clock_ahead_ms) * 1_000_000 // (1_000_000 + self.clock_ppm)
        while self.clock(at) < shown:
            at += 1
        return at

    def empty_folder(self) -> None:
        """Let the next process begin with an empty folder, as an operator does where one is refused."""
        self.folder, self.has_lost_folder = None, True

    def repair_folder(self) -> None:
        """Do what an operator does with a folder that was refused: repair it, or empty it."""
        if self.folder is not None and self.folder.repair():
            self.repaired_folders += 1
            # What was cut comes back as a stranger, and the holder that it was does not (DU-61).
            self.has_lost_folder |= self.folder.is_cut
        else:
            self.empty_folder()

    def empty_copied_folder(self) -> bool:
        """Do so if there are two of this folder. Return whether there are."""
        is_copied = self.folder is not None and self.folder.is_copied
        if is_copied:
            self.empty_folder()
        return is_copied

    @property
    def member(self) -> MemberId | None:
        """The incarnation that runs here."""
        return self.node.this if self.node is not None else None

    @property
    def running_node(self) -> Node:
        """The node of a host on which a process runs."""
        return known(self.node, "a process runs on the host", host=self)

    @property
    def has_joined(self) -> bool:
        return self.node is not None and self.node.membership.view is not None

    @property
    def has_failed_disk(self) -> bool:
        """Whether the process that runs here has lost its disk."""
        return self.disk is not None and self.disk.state is DiskState.FAILED


class Channel:
    """One connection in one direction."""

    __slots__ = (
        "has_hole",
        "is_open",
        "lag_ms",
        "last_at",
        "number",
        "opener",
        "receiver",
        "sender",
        "stalled",
        "target",
    )

    def __init__(self, number: int, opener: Host, sender: MemberId, target: Target, receiver: Host) -> None:
        self.number = number
        self.opener = opener
        self.sender = sender
        self.target = target
        self.receiver = receiver
        self.has_hole = False
        """Whether something sent on it was not let through: then it breaks as soon as something is."""
        self.stalled: list[Message] = []
        """What was sent on it and arrives when something is let through again."""
        self.is_open = True
        """False: what is in flight does not arrive. The sender need not know yet."""
        self.lag_ms: Millis = 0
        self.last_at: Millis = 0
        """When the latest message arrives: no later one can overtake it."""

    def __repr__(self) -> str:
        return f"Channel({self.number}: {self.sender} to {self.target}, open={self.is_open})"


def count_down(points: list[tuple[str, int, Millis]], what: str) -> Millis | None:
    """Count one more message of a type. Return after how long the process comes back, if this was the point of its crash."""
    for index, (wanted, left, comes_back_after_ms) in enumerate(points):
        if wanted == what:
            if left <= 1:
                del points[index]
                return comes_back_after_ms
            points[index] = (wanted, left - 1, comes_back_after_ms)
            return None
    return None
