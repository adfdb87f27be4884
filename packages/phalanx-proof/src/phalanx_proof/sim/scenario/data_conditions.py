"""What a scenario can expect of data, or wait for."""

from __future__ import annotations

from collections.abc import Callable

from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.scenario import entries, parsing
from phalanx_proof.sim.scenario.errors import wrong
from phalanx_proof.sim.scenario.replicas import entries_at, holders_at, lacking, row_text, value_by_table
from phalanx_proof.sim.scenario.stage import Stage


def _each(stage: Stage, text: str, what: str, look: Callable[[Host, str], tuple[str, str]]) -> str:
    """Compare, for each host in `A B: wanted`, what `look` returns: what it shows, and what is wanted of it."""
    left, colon, wanted = text.partition(":")
    if not colon:
        raise wrong(f"hosts, a colon and {what}", text)
    differing = []
    for host in (stage.host(name) for name in parsing.hosts(left, stage.names.hosts)):
        found, expected = look(host, wanted.strip()) if host.node is not None else ("down", "")
        if found != expected:
            differing.append(f"{stage.name(host)}: {found}")
    return "; ".join(differing)


def _row(stage: Stage, text: str) -> str:
    """`row A B: 0 [A,B]`: by their tables these hold the partition, owner first."""

    def look(host: Host, wanted: str) -> tuple[str, str]:
        word, _, row = wanted.partition(" ")
        partition = parsing.number(word, "a partition and its replicas, such as 0 [A,B]")
        table = host.running_node.installed_table.table
        if partition >= table.partition_count:
            raise wrong(f"one of the {table.partition_count} partitions", word)
        return row_text(stage.names, table.slots(partition)), row.strip()

    return _each(stage, text, "a row such as 0 [A,B]", look)


def _holds(stage: Stage, text: str) -> str:
    """Check that the replicas of each host have exactly these entries of the map: `holds A B: x=1 y=2`."""

    def look(host: Host, wanted: str) -> tuple[str, str]:
        pairs = [] if wanted == "nothing" else entries.pairs(wanted.split())
        return entries_at(host, stage.now), entries.shown((key, f"={value}") for key, value in pairs)

    return _each(stage, text, "entries such as x=1 y=2, or nothing", look)


def _value(stage: Stage, text: str) -> str:
    """`value A B: x=1 y=none`: by the table of each, the owners of these keys hold these values."""

    def look(host: Host, wanted: str) -> tuple[str, str]:
        pairs = entries.pairs(wanted.split())
        found = entries.shown((key, f"={value_by_table(stage, host, key)}") for key, _ in pairs)
        return found, entries.shown((key, f"={value}") for key, value in pairs)

    return _each(stage, text, "keys and values such as x=1 y=none", look)


def _locked(stage: Stage, text: str, *, is_semaphore: bool = False) -> str:
    """`locked A B: x one`: by the replicas of each, exactly these hold the lock of the key; `x nobody`."""

    def look(host: Host, wanted: str) -> tuple[str, str]:
        key, *holders = wanted.split() or [""]
        found = holders_at(host, key, is_semaphore=is_semaphore)
        expected = "" if holders == ["nobody"] else " ".join(holders)
        return ("no replica", expected) if found is None else (" ".join(found), expected)

    return _each(stage, text, "a key and who holds its lock, such as x one", look)


def _permitted(stage: Stage, text: str) -> str:
    return _locked(stage, text, is_semaphore=True)


def _keeps(stage: Stage, text: str) -> str:
    """Check what each host has yet to merge of clusters that it has left, in entries: `keeps D E: nothing`."""

    def look(host: Host, wanted: str) -> tuple[str, str]:
        count = host.running_node.data_merging.orphaned.entry_count()
        return str(count or "nothing"), wanted

    return _each(stage, text, "a number of entries, or nothing", look)


def _replicated(stage: Stage, text: str) -> str:
    """Check that all replicas are where they should be, and equal; nothing moves, and nothing is left to merge."""
    if text:
        raise wrong("nothing more in this line", text)
    return lacking(stage)


def _answered(stage: Stage, text: str) -> str:
    """Check that every call of a program is answered."""
    if text:
        raise wrong("nothing more in this line", text)
    return "; ".join(f"{call.text}: no answer yet" for call in stage.programs.open())


DATA_CONDITIONS: dict[str, Callable[[Stage, str], str]] = {
    "answered": _answered,
    "holds": _holds,
    "keeps": _keeps,
    "locked": _locked,
    "permitted": _permitted,
    "replicated": _replicated,
    "row": _row,
    "value": _value,
}
