"""For whom a cluster that was switched off waits, and the words that tell operators and callers of it.

The words name the members to start, and no command that gives up what they have: whoever reads them is in a hurry.
"""

from __future__ import annotations

import datetime as dt

import msgspec

from phalanx.common.ids import MemberId, Millis, address_of
from phalanx.common.words import counted


class RestartWait(msgspec.Struct, frozen=True, array_like=True):
    """Why a cluster that was switched off does not go on yet."""

    members: tuple[MemberId, ...]
    """The former members that it waits for, as far as they are known."""
    lacking: int
    """Partitions that no present member has as a whole."""
    lacks_majority: bool
    """Whether the majority of the last stable list is not back."""
    seen_ms: Millis
    """When the members that are back were up last, since 1970; 0: unknown."""
    clusters: tuple[tuple[MemberId, ...], ...] = ()
    """Where members that are here have the data of several clusters: those of each. None of these goes on before the others are stopped."""

    @property
    def is_short(self) -> bool:
        """Return whether the cluster has all it needs, and only gives late members a moment."""
        return not (self.lacking or self.lacks_majority)


def wait_in_words(wait: RestartWait) -> str:
    """Return for whom the cluster waits, why, and what to do, in one sentence without its end."""
    if wait.clusters:
        several = ", and ".join(
            f"{', '.join(map(address_of, each))} that of {'another one' if number else 'one'}"
            for number, each in enumerate(wait.clusters)
        )
        return f"nothing is served: the members that are here have the data of several clusters, {several}; stop all but those of one"
    missing = ", ".join(map(address_of, wait.members)) or "members that nobody here knows"
    if wait.seen_ms:
        missing += f" (last seen at {_moment(wait.seen_ms)})"
    said = f"the cluster was switched off and waits for {missing}"
    if wait.is_short:
        return f"{said} for a moment; then it goes on without"
    reasons = ["the majority of its last members is not back"] if wait.lacks_majority else []
    if wait.lacking:
        reasons.append(f"no member that is here has all of {counted(wait.lacking, 'partition')}")
    them = "it with its folder" if len(wait.members) == 1 else "them with their folders"
    return f"{said}: {' and '.join(reasons)}; start {them}"


def _moment(at_ms: Millis) -> str:
    return f"{dt.datetime.fromtimestamp(at_ms // 1000, dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
