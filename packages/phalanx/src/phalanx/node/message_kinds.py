"""Kinds of messages that a member treats alike, whatever their handlers do."""

from __future__ import annotations

from typing import get_args

from phalanx.wire import messages as m

OF_ONE_PARTITION = frozenset(
    [
        *get_args(m.Mutation),
        *(m.ReplicateAck, m.ProbeAnswer, m.CopyStart, m.CopyChunk, m.CopyAck, m.CopyRefused),
        *(m.MigrationOrder, m.MigrationReady, m.MigrationCommit, m.MigrationAnswer),
    ]
)
"""Messages that name one partition. If this member does not know it, the sender has a newer table: then the message is
repeated.
"""
OF_PARTITIONS = frozenset([*get_args(m.KeyRequest), *get_args(m.BulkRequest)])
"""Requests that can have to wait until their partition can be served."""
SET_ALARMS = frozenset(
    [
        *OF_PARTITIONS,
        *get_args(m.Mutation),
        *get_args(m.Reply),
        *(m.ReplicateAck, m.ReplicateAcks, m.CopyAck),
    ]
)
"""The messages of callers' requests and writes. Their handlers set the alarms of the machines whose work they change."""
