"""The lineage of a replica: under which owners its writes were made. Values and pure rules.

The writes of a partition are numbered over all its owners, and each owner begins an epoch. So two replicas that have one write
of the same number and the same epoch and owner have the same writes up to that one (Raft calls this log matching; in Kafka it is the
leader epoch of a record). A replica is a *prefix* of another one if that has the last write of this one.
"""

from __future__ import annotations

import msgspec

MAX_EPOCHS = 256
"""The most epochs that a replica knows: the latest in which something was written. What is older is taken for unknown."""


class LeaderEpoch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An epoch that a replica has followed."""

    epoch: int
    leader: str
    """The owner whose writes these are, as it was named before its partition was divided."""
    after: int
    """The sequence number of the last write before this epoch."""


Lineage = tuple[LeaderEpoch, ...]
"""The epochs of a replica, the first one first. In each but the last something was written."""


def followed(lineage: Lineage, epoch: int, leader: str, seq: int) -> Lineage:
    """Return the lineage of a replica that begins an epoch. `seq`: the number of its last write."""
    if lineage and lineage[-1].after == seq:
        lineage = lineage[:-1]  # nothing was written in it
    if lineage and (lineage[-1].epoch, lineage[-1].leader) == (epoch, leader):
        return lineage  # that one goes on
    return (*lineage, LeaderEpoch(epoch, leader, seq))[-MAX_EPOCHS:]


def find_epoch(lineage: Lineage, seq: int) -> LeaderEpoch | None:
    """Return the epoch in which a write was made; None: there is none of this number, or its epoch is forgotten."""
    return next((each for each in reversed(lineage) if each.after < seq), None)


def has_write(lineage: Lineage, seq: int, number: int, epoch: int, leader: str) -> bool:
    """Return whether a replica has the write of a number that was made in an epoch. `seq`: the number of its last write."""
    found = find_epoch(lineage, number) if number <= seq else None
    return found is not None and (found.epoch, found.leader) == (epoch, leader)


def is_prefix(lineage: Lineage, seq: int, of: Lineage, of_seq: int) -> bool:
    """Return whether a replica has nothing that another one has not."""
    if seq == 0:
        return True
    last = find_epoch(lineage, seq)
    return last is not None and has_write(of, of_seq, seq, last.epoch, last.leader)
