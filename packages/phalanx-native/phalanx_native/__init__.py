"""Native versions of Phalanx's functions on many keys or values: see `phalanx.codec.native`."""

import os

if os.environ.get("PHALANX_PURE"):
    raise ImportError("PHALANX_PURE is set: Phalanx uses its functions in Python")

from phalanx_native._columns import join_pieces, match_literal, pack_by_partition, read_integers, write_integers
from phalanx_native._commands import Commands
from phalanx_native._entries import (
    INTERFACE,
    add_rows,
    entries_from_data,
    greatest_head,
    group_by_owner,
    keys_to_data,
    next_rows,
    pack_rows,
    page_of_entries,
    partition_of,
    partitions_of,
    put_at,
    sizes_in,
    sizes_of,
    split_rows,
    values_from_data,
    values_to_data,
    without_prefixes,
)
from phalanx_native._messages import present_frames, whole_message
from phalanx_native._replay import Follower
from phalanx_native._stores import Stores

__all__ = [
    "INTERFACE",
    "Commands",
    "Follower",
    "Stores",
    "add_rows",
    "entries_from_data",
    "greatest_head",
    "group_by_owner",
    "join_pieces",
    "keys_to_data",
    "match_literal",
    "next_rows",
    "pack_by_partition",
    "pack_rows",
    "page_of_entries",
    "partition_of",
    "partitions_of",
    "present_frames",
    "put_at",
    "read_integers",
    "sizes_in",
    "sizes_of",
    "split_rows",
    "values_from_data",
    "values_to_data",
    "whole_message",
    "without_prefixes",
    "write_integers",
]
