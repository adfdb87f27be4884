"""What the master waits for before it raises the cluster version, in words: who, where, until when, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phalanx.common.departure import HowGone
from phalanx.common.ids import Address, Millis
from phalanx.common.words import counted
from phalanx.membership.join.departure_record import NotedDeparture

NAMED = 3
"""So many members are named; the others are counted."""

WHAT = {
    HowGone.CUT_OFF: (
        "{} ran an older release and did not leave in good order: it may live, and keep data that the cluster does not have. "
        "Let it come back, or start it anew with the newer release if it does not run"
    ),
    HowGone.ENDED: (
        "{} ran an older release and did not leave in good order: its process has ended, and may be started again as it was. "
        "Start it with the newer release"
    ),
    HowGone.UNKNOWN: (
        "{} is a seed that did not answer when the cluster began, or an address that a member of the first release has named: a "
        "member may have been cut off there, and keep data that the cluster does not have. If one runs there, let it come back"
    ),
}
"""What is known of a member that is waited for, by how it went, and what to do; in the place of {}: where."""


def absence_words(absent: Mapping[Address, NotedDeparture], now: Millis) -> str:
    """Say who is waited for, those first that may keep data, for how long at most, and how to go on without them."""
    said = []
    for how, words in WHAT.items():
        waited = {address: each for address, each in absent.items() if each.how is how}
        if waited:
            longest = max(each.until for each in waited.values()) - now
            said.append(f"{words.format(named(list(waited)))}. It is waited for, {_duration_words(longest)} at most")
    return f"{'; '.join(said)}. To go on without: phalanx members --raise-cluster-version"


def _duration_words(ms: Millis) -> str:
    minutes = -(-ms // 60_000)
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours else f"{rest} min"


def named(addresses: Sequence[str]) -> str:
    """Name some addresses, and count the rest."""
    shown = ", ".join(addresses[:NAMED])
    return shown + (f" and {counted(len(addresses) - NAMED, 'other')}" if len(addresses) > NAMED else "")
