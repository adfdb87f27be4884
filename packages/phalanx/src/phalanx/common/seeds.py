"""Members as settings, programs and commands give them: addresses, and sources that give addresses when they are asked.

* `host:port` is an address.
* `dns:NAME:PORT` stands for all addresses (A and AAAA records) that the name has at the moment, each with this port.
* `file:PATH` stands for the addresses in a file, one `host:port` a line; `#` begins a comment.
* `phalanx://host1,host2:5702/cluster` is a whole text: several addresses (also `dns:NAME:PORT`), each with port 5701 where it has
  none, and the name of the cluster, which can be left out.

`net/seed_lookups.py` asks the sources; this module only checks texts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from phalanx.common.errors import UsageError
from phalanx.common.ids import Address, host_and_port, parse_address
from phalanx.common.words import quoted

DNS: Final = "dns:"
FILE: Final = "file:"
URL: Final = "phalanx://"
DEFAULT_PORT: Final = 5701
DEFAULT_MEMBERS: Final = f"127.0.0.1:{DEFAULT_PORT}"
"""The member that is meant where none is named."""
DEFAULT_CLUSTER: Final = "phalanx"
"""The name of a cluster that was given none."""
MOST_FOUND: Final = 256
"""How many addresses of sources are used: the first in their order, which is the same wherever the answers are the same."""


class DnsSource(NamedTuple):
    """A name of the DNS, and the port at which members listen on all its addresses."""

    name: str
    port: int

    def __str__(self) -> str:
        return f"{DNS}{self.name}:{self.port}"


class FileSource(NamedTuple):
    """A file with one address a line."""

    path: str

    def __str__(self) -> str:
        return f"{FILE}{self.path}"


Source = DnsSource | FileSource
Seed = Address | DnsSource | FileSource


class GivenMembers(NamedTuple):
    """What a text such as `phalanx://host1,host2/cluster`, or a list of such, names."""

    seeds: list[Seed]
    cluster: str | None = None
    """The name of the cluster; None: no text has one."""

    def cluster_or(self, given: str) -> str:
        """Return the name of the cluster, where `given` is what was said beside the members; `DEFAULT_CLUSTER` gives way. Raises
        `UsageError` if the two differ."""
        if self.cluster is None or given == self.cluster:
            return given
        if given != DEFAULT_CLUSTER:
            raise UsageError(
                f"the cluster is {quoted(given)}, and {quoted(self.cluster)} in {URL}…/{self.cluster}: give one of the two"
            )
        return self.cluster

    def __str__(self) -> str:
        return ",".join(map(str, self.seeds))


def is_source(text: str) -> bool:
    """Return whether the text names a source. A host can be called dns or file: `dns:5701` is its address."""
    text = text.strip()
    rest = text.removeprefix(DNS) if text.startswith(DNS) else text.removeprefix(FILE)
    return rest != text and not rest.isdecimal()


def parse_seed(text: str) -> Seed:
    """Return what one seed says. Raises `UsageError` that quotes the text and shows the forms expected."""
    text = text.strip()
    if not is_source(text):
        try:
            return parse_address(text)
        except UsageError as error:
            raise UsageError(
                f"{error}, dns:NAME:PORT for all addresses of a name, file:PATH for a file of addresses, or {URL}host1,host2/cluster"
            ) from None
    if text.startswith(FILE):
        path = text.removeprefix(FILE)
        if not path or "\0" in path:
            raise UsageError(
                f"{quoted(text)} does not name a file: expected file:PATH, for example file:/etc/phalanx/seeds"
            )
        return FileSource(path)
    try:
        name, port = host_and_port(parse_address(text.removeprefix(DNS)))
    except UsageError:
        raise UsageError(f"{quoted(text)} is not a DNS name with a port: expected dns:NAME:PORT") from None
    return DnsSource(name, port)


def parse_members(given: str | Iterable[str]) -> GivenMembers:
    """Check and split `host:port,dns:NAME:PORT`, `phalanx://host1,host2/cluster`, or a list of such. Raises `UsageError` when there
    is none, one is malformed, or they name two clusters."""
    parts = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else []
    if any(not isinstance(part, str) for part in parts) or not (parts or isinstance(given, Iterable)):
        raise UsageError(f"{quoted(given)} does not name a member: give host:port,host:port, or a list of such")
    seeds: list[Seed] = []
    clusters: dict[str, None] = {}
    for text in map(str.strip, parts):
        if text.startswith(URL):
            found = _parse_url(text)
            seeds += found.seeds
            if found.cluster is not None:
                clusters[found.cluster] = None
        else:
            seeds += [parse_seed(part) for part in text.split(",") if part.strip()]
    if not seeds:
        raise UsageError(f"{quoted(','.join(parts))} does not name a member: expected host:port,host:port")
    if len(clusters) > 1:
        raise UsageError(
            f"members of two clusters were given, {' and '.join(map(quoted, clusters))}: give members of one cluster"
        )
    return GivenMembers(seeds, next(iter(clusters), None))


def _parse_url(text: str) -> GivenMembers:
    hosts, _, cluster = text.removeprefix(URL).partition("/")
    expected = f"expected {URL}host1,host2/cluster, each host with :port if that is not {DEFAULT_PORT}"
    if "@" in hosts:
        raise UsageError(f"an address {URL}… has no user and no secret: give secret_file beside it; {expected}")
    if any(each in cluster for each in "/?#%"):
        raise UsageError(f"{quoted(text)}: what follows the hosts is the cluster's name alone; {expected}")
    seeds = [parse_seed(_with_port(part.strip())) for part in hosts.split(",") if part.strip()]
    if not seeds:
        raise UsageError(f"{quoted(text)} does not name a member: {expected}")
    return GivenMembers(seeds, cluster or None)


def _with_port(host: str) -> str:
    """Return an address with its port. `[::1]` is a host, and `[::1]:5701` one with its port."""
    return host if is_source(host) or ":" in host.rpartition("]")[2] else f"{host}:{DEFAULT_PORT}"


def sources_of(seeds: Iterable[Seed]) -> tuple[Source, ...]:
    """Return the sources among seeds, each once."""
    return tuple(dict.fromkeys(each for each in seeds if isinstance(each, DnsSource | FileSource)))


def addresses_of(seeds: Iterable[Seed]) -> list[Address]:
    """Return the addresses among seeds, each once."""
    return list(dict.fromkeys(each for each in seeds if isinstance(each, str)))


def addresses_in(content: str, where: str) -> tuple[list[Address], list[str]]:
    """Return the addresses in the text of a file, and what is wrong with its other lines."""
    found, problems = [], []
    for number, line in enumerate(content.splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        try:
            found.append(parse_address(text))
        except UsageError as error:
            problems.append(f"{where}, line {number}: {error}")
    return found, problems
