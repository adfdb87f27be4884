"""Ask sources of seeds (`common/seeds.py`) for addresses, without blocking other work.

A resolver or a network disk can hang for longer than callers can wait: each look-up has a thread of its own, which ends
with the process, and never a second one for the same source. What a source gave stays until it gives something else: a
resolver that fails for a moment takes nothing away.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterable
from time import monotonic, sleep
from typing import NamedTuple

from phalanx.common.errors import ConnectError, UnavailableError
from phalanx.common.ids import Address
from phalanx.common.seeds import (
    MOST_FOUND,
    DnsSource,
    Source,
    addresses_in,
    addresses_of,
    parse_members,
    sources_of,
)
from phalanx.common.words import check_text
from phalanx.net.addresses import is_wildcard
from phalanx.net.begun_threads import begin_thread

LATE_AFTER_S = 5.0
"""A source that has not answered for so long is said to be silent. Its thread continues waiting."""
ASK_EVERY_S = 1.0
"""The shortest time between the ends of two look-ups of one source."""
FIRST_WITHIN_S = 10.0
"""How long a command waits for the first answer."""
POLL_S = 0.01
SHORTEST_S = 0.1
"""What is left at least for connecting, when the look-up took nearly all the time."""
MOST_FILE_BYTES = 256 * 1024
"""How much of a file is read."""
MOST_PROBLEMS = 3
"""How many wrong lines of a file are told."""


class FoundSeeds(NamedTuple):
    """What all sources together have given last."""

    addresses: tuple[Address, ...]
    """In their order, each once, and `MOST_FOUND` at most."""
    failures: tuple[str, ...]
    """Each source that did not answer when it was last asked, and why; and what is wrong in files."""


class SourceAnswer(NamedTuple):
    """What one look-up of one source has given."""

    addresses: list[Address] | None
    """None: it has failed, and says nothing about what was found before."""
    failures: list[str]


class SeedLookups:
    """The look-ups of some sources. `ask` begins them, `take_changes` tells what they have given; neither waits."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self._looks = [_Look(source) for source in sources]
        self._reported: FoundSeeds | None = None

    def ask(self) -> None:
        """Look into each source again, unless that is under way or was done just now."""
        for look in self._looks:
            look.begin()

    def take_changes(self) -> FoundSeeds | None:
        """Return what is found, if that has changed since the last call; None: it has not, or nothing has answered yet."""
        answers = [look.answer() for look in self._looks]
        if all(answer is None for answer in answers):
            return None
        known = [answer for answer in answers if answer is not None]
        addresses = sorted({address for answer in known for address in answer.addresses or ()})
        failures = [failure for answer in known for failure in answer.failures]
        if len(addresses) > MOST_FOUND:
            failures.append(f"{len(addresses)} addresses were found; the first {MOST_FOUND} are used")
        found = FoundSeeds(tuple(addresses[:MOST_FOUND]), tuple(failures))
        if found == self._reported:
            return None
        self._reported = found
        return found


class _Look:
    """One source, and at most one thread that asks it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._begins = threading.Lock()
        self._thread: threading.Thread | None = None
        """The look-up that was begun last. In a forked process it has ended."""
        self._began_at = self._ended_at = float("-inf")
        self._answer: SourceAnswer | None = None

    @property
    def _is_under_way(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def begin(self) -> None:
        if not self._begins.acquire(blocking=False):
            return  # another thread of this client begins it just now
        try:
            now = monotonic()
            if self._is_under_way or now - self._ended_at < ASK_EVERY_S:
                return
            self._began_at = now
            self._thread = begin_thread(self._look, f"look-up {self._source}")
        except UnavailableError as error:  # asked again later
            self._end(SourceAnswer(None, [f"{self._source}: {error}"]))
        finally:
            self._begins.release()

    def answer(self) -> SourceAnswer | None:
        """Return the latest answer; None: there is none yet, and it is too early to say that it is late."""
        known = self._answer
        if not self._is_under_way or monotonic() - self._began_at < LATE_AFTER_S:
            return known
        late = f"{self._source}: no answer for {LATE_AFTER_S:g} s"
        return SourceAnswer(known.addresses if known is not None else None, [late])

    def _look(self) -> None:
        try:
            answer = look_up(self._source)
        except Exception as error:  # whatever a resolver raises: a thread that dies would never ask again
            answer = SourceAnswer(None, [f"{self._source}: {type(error).__name__}: {error}"])
        self._end(answer)

    def _end(self, answer: SourceAnswer) -> None:
        if answer.addresses is None and self._answer is not None:
            answer = answer._replace(addresses=self._answer.addresses)
        self._answer = answer
        self._ended_at = monotonic()


def look_up(source: Source) -> SourceAnswer:
    """Ask one source, and wait for its answer: for as long as the resolver or the disk takes."""
    if isinstance(source, DnsSource):
        return _look_up_name(source)
    try:
        with open(source.path, "rb") as file:
            content = file.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        return SourceAnswer(None, [f"{source}: {error.strerror or error}"])
    if len(content) > MOST_FILE_BYTES:
        return SourceAnswer(None, [f"{source}: it is longer than {MOST_FILE_BYTES} bytes"])
    addresses, problems = addresses_in(content.decode(errors="replace"), str(source))
    if not addresses:
        problems.append(f"{source}: it has no address")
    return SourceAnswer(addresses, problems[-MOST_PROBLEMS:])


def _look_up_name(source: DnsSource) -> SourceAnswer:
    try:
        records = socket.getaddrinfo(source.name, source.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return SourceAnswer(None, [f"{source}: {reason}"])
    hosts = [str(record[4][0]) for record in records]
    # An address with a zone means something on one machine only; a wildcard leads to the asking machine.
    usable = [host for host in hosts if "%" not in host and not is_wildcard(host)]
    if not usable:
        return SourceAnswer(None, [f"{source}: it has no address that others can reach ({', '.join(hosts[:4])})"])
    return SourceAnswer(
        [Address(f"[{host}]:{source.port}" if ":" in host else f"{host}:{source.port}") for host in usable], []
    )


# --- for clients and commands --------------------------------------------------------------------------------------


class SeedPlaces:
    """Where a client looks for members: addresses, and what sources give."""

    def __init__(self, members: str | Iterable[str]) -> None:
        """Parse addresses and sources. Raises `UsageError` for a malformed one, or if there is none."""
        self._given = parse_members(members)
        self._seeds = self._given.seeds
        sources = sources_of(self._seeds)
        self._fixed = addresses_of(self._seeds)
        self._lookups = SeedLookups(sources) if sources else None
        self._found = FoundSeeds((), ())

    def __str__(self) -> str:
        return str(self._given)

    def cluster_or(self, given: str) -> str:
        """Return the name of the cluster, as `GivenMembers.cluster_or` does. Raises `UsageError` as it does."""
        return check_text(self._given.cluster_or(given), "cluster")

    @property
    def addresses(self) -> list[Address]:
        """Return the addresses that are known now."""
        return list(dict.fromkeys([*self._fixed, *self._found.addresses]))

    @property
    def only_address(self) -> Address | None:
        """Return the one address that was given; None: there are several, or sources of them."""
        return self._fixed[0] if len(self._fixed) == 1 and self._lookups is None else None

    @property
    def may_change(self) -> bool:
        """Return whether there are sources, which can give other addresses later."""
        return self._lookups is not None

    def look(self) -> None:
        """Ask the sources again, if that was not done just now, and take what they have given by now."""
        if self._lookups is not None:
            self._lookups.ask()
            self._found = self._lookups.take_changes() or self._found

    def wait(self, within_s: float = FIRST_WITHIN_S) -> float:
        """Wait until an address is known, and return how many seconds are left. Raises `ConnectError` if there is none in time."""
        deadline = monotonic() + within_s
        has_waited = False
        while self._is_to_wait():
            if monotonic() >= deadline:
                raise self._nothing_found(within_s)
            has_waited = True
            sleep(POLL_S)
        return max(deadline - monotonic(), SHORTEST_S) if has_waited else within_s

    async def wait_async(self, within_s: float) -> float:
        """Wait like `wait`, for an event loop."""
        deadline = monotonic() + within_s
        has_waited = False
        while self._is_to_wait():
            if monotonic() >= deadline:
                raise self._nothing_found(within_s)
            has_waited = True
            await asyncio.sleep(POLL_S)
        return max(deadline - monotonic(), SHORTEST_S) if has_waited else within_s

    def _is_to_wait(self) -> bool:
        self.look()
        return not self.addresses

    def _nothing_found(self, within_s: float) -> ConnectError:
        failures = "; ".join(self._found.failures) or f"{', '.join(map(str, self._seeds))}: no answer"
        return ConnectError(f"no address of a member was found within {within_s:g} s: {failures}")


def find_addresses(members: str | Iterable[str]) -> list[Address]:
    """Return the addresses that `host:port,dns:NAME:PORT` stands for now. Raises `UsageError` and `ConnectError`."""
    places = SeedPlaces(members)
    places.wait(FIRST_WITHIN_S)
    return places.addresses
