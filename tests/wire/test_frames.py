"""Recorded frames of released protocols (PX-42): later builds read them, and write them so that the builds of then read them."""

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from phalanx.common.versions import OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION
from phalanx.wire.codec import handshake_decoder, message_decoder
from phalanx.wire.messages import Handshake
from support import released
from support.record_frames import FRAMES, frames

HANDSHAKE = {kind.__name__ for kind in get_args(Handshake)}
SPOKEN = range(OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION + 1)


def recorded(protocol: int) -> dict[str, bytes]:
    path: Path = FRAMES / f"{protocol}.json"
    return {name: bytes.fromhex(frame) for name, frame in json.loads(path.read_text()).items()}


def continues(later: Any, earlier: Any) -> bool:
    """Whether a value is an earlier one, with nothing but further fields behind those that there were."""
    if isinstance(later, list) and isinstance(earlier, list):
        return len(later) >= len(earlier) and all(map(continues, later, earlier))
    return bool(later == earlier)


def test_a_field_that_is_added_in_the_middle_or_changed_is_noticed() -> None:
    assert continues([1, [2, 3, "new"], "new"], [1, [2, 3]])
    assert not continues([1, "new", [2, 3]], [1, [2, 3]])
    assert not continues([1, [2]], [1, [2, 3]])
    assert not continues([1, ["2"]], [1, [2]])


@pytest.mark.rows("PX-42")
def test_the_present_protocol_is_as_it_was_recorded() -> None:
    now, then = frames(), {name: frame.hex() for name, frame in recorded(PROTOCOL_VERSION).items()}
    changed = sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))
    assert not changed, (
        f"{changed} differ from tests/releases/frames/{PROTOCOL_VERSION}.json: a released protocol never changes. Raise "
        f"PROTOCOL_VERSION, and record the new one (HACKING.md, Changing the protocol)"
    )


@pytest.mark.parametrize("protocol", SPOKEN)
def test_every_message_of_a_spoken_protocol_is_read_and_written(protocol: int) -> None:
    for name, frame in recorded(protocol).items():
        decoder: Any = handshake_decoder if name in HANDSHAKE else message_decoder
        message = decoder.decode(frame)
        assert type(message).__name__ == name
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
        assert continues(again, msgspec.msgpack.decode(frame)), name


@pytest.mark.rows("PX-42")
def test_the_last_release_reads_what_this_build_writes() -> None:
    """What this build adds stands behind the fields that the last release knows, and it reads them as they were."""
    old, then = released.release(), recorded(released.PROTOCOL)
    now = recorded(PROTOCOL_VERSION)
    for name, frame in then.items():
        decoder = old.codec.handshake_decoder if name in HANDSHAKE else old.codec.message_decoder
        assert decoder.decode(now[name]) == decoder.decode(frame), name


def test_messages_of_the_newer_protocol_are_not_known_to_the_last_release() -> None:
    """So they must never be sent to it: it would close the connection."""
    added = recorded(PROTOCOL_VERSION).keys() - recorded(released.PROTOCOL).keys()
    of_operators = {"ForgetMember", "GiveUpHolders", "LeaveCluster", "StopCluster"}
    known = {"DiskReport", "FindWrite", "MajorityHasTable", "RestartAwaited", "StopOrder"} | of_operators
    assert added == known, "name here what is new: then it is looked for where it is sent"
    for name in added:
        with pytest.raises(msgspec.ValidationError):
            released.release().codec.message_decoder.decode(recorded(PROTOCOL_VERSION)[name])


def test_this_build_speaks_the_protocol_of_the_last_release_and_the_next_one() -> None:
    """So an upgrade that tests play is one from one protocol to another (PX-42)."""
    assert (OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION) == (released.PROTOCOL, released.PROTOCOL + 1)
    theirs = released.release().versions
    assert (theirs.OLDEST_PROTOCOL_VERSION, theirs.PROTOCOL_VERSION) == (released.OLDEST, released.PROTOCOL)
