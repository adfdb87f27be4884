"""The options of the format `phalanx`: what each means, its default, and what is wrong with what was given.

This table is the one place that documents them. Spark hands option names over in lower case, whatever the user wrote.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from phalanx.common.errors import UsageError
from phalanx.common.ids import parse_addresses
from phalanx.net.secret import SECRET_FILE_VARIABLE

_MOST_TTL_MS = 10 * 365 * 86_400 * 1_000

READ, WRITE = "read", "write"


@dataclass(frozen=True)
class Option:
    """One option: its name as documented, where it applies, its default (None: it must be given) and its meaning."""

    name: str
    applies_to: tuple[str, ...]
    default: str | None
    meaning: str


OPTIONS = (
    Option("members", (READ, WRITE), None, "where members listen: host:port,host:port; any one that answers will do"),
    Option("map", (READ, WRITE), None, "name of the map"),
    Option(
        "key",
        (READ, WRITE),
        "key",
        "column that holds the key of the map; several, separated by commas, make a key that is a list",
    ),
    Option("cluster", (READ, WRITE), "phalanx", "name of the cluster; members of another name refuse the connection"),
    Option(
        "secretFile",
        (READ, WRITE),
        f"${SECRET_FILE_VARIABLE}",
        "file with the cluster's secret, at this path on the driver and on every worker; by default the one that the "
        "variable names there, if any",
    ),
    Option(
        "numPartitions",
        (READ,),
        "0",
        "tasks that read in parallel; 0: two for each member that owns data, and no fewer than the driver has cores",
    ),
    Option("sampleSize", (READ,), "1000", "entries looked at to infer a schema where none is given"),
    Option(
        "pushDown",
        (READ,),
        "false",
        "whether filters on the key are looked up instead of scanning the map. Needs the setting "
        "spark.sql.python.filterPushdown.enabled, and a DataFrame of its own for each filter: Spark 4 applies what it "
        "pushed down in one query of a DataFrame to the other queries of it too",
    ),
    Option("ttlMs", (WRITE,), "0", "milliseconds that the written entries live; 0: for ever"),
    Option(
        "keyInValue",
        (WRITE,),
        "true",
        "whether the stored rows hold the key columns too; false saves memory, and a read takes them from the key alike",
    ),
)


@dataclass(frozen=True)
class Options:
    """Checked options; picklable, so that tasks get them as they are."""

    members: str
    map: str
    key: tuple[str, ...]
    cluster: str
    num_partitions: int
    sample_size: int
    push_down: bool
    ttl_ms: int
    key_in_value: bool
    secret_file: str | None = None


def describe(use: str) -> str:
    """The options of reading or of writing, with defaults, for an error message."""
    return ", ".join(
        option.name if option.default is None else f"{option.name} (default {option.default})"
        for option in OPTIONS
        if use in option.applies_to
    )


def parse_options(given: Mapping[str, str], use: str) -> Options:
    """Check the options of a read or a write. Raises `UsageError` that names the option and what to do."""
    known = {option.name.lower(): option for option in OPTIONS}
    for name, value in given.items():
        if name.lower() == "path":
            raise UsageError(
                f"the format phalanx has no paths, and {value!r} was given as one: "
                f"name the map with .option('map', {value!r}) and call load() or save() without an argument"
            )
        option = known.get(name.lower())
        if option is None:
            raise UsageError(f"there is no option {name!r}{_guess(name)}; options of a {use}: {describe(use)}")
        if use not in option.applies_to:
            raise UsageError(
                f"option {option.name!r} belongs to a {option.applies_to[0]}, not to a {use}; leave it out "
                f"(options of a {use}: {describe(use)})"
            )
    values = {name.lower(): value for name, value in given.items()}

    def text(name: str) -> str:
        option = known[name.lower()]
        value = values.get(name.lower(), option.default)
        if value is None or not value.strip():
            state = "missing" if value is None else "empty"
            raise UsageError(
                f"option {name!r} is {state}: {option.meaning}; add .option({name!r}, ...) "
                f"(options of a {use}: {describe(use)})"
            )
        return value.strip()

    members = text("members")
    try:
        parse_addresses(members)
    except UsageError as error:
        raise UsageError(f"option 'members': {error}") from None
    return Options(
        members=members,
        map=text("map"),
        key=_columns(text("key")),
        cluster=text("cluster"),
        num_partitions=_number("numPartitions", text("numPartitions"), 0, 100_000),
        sample_size=_number("sampleSize", text("sampleSize"), 1, 10_000_000),
        push_down=_flag("pushDown", text("pushDown")),
        ttl_ms=_number("ttlMs", text("ttlMs"), 0, _MOST_TTL_MS),
        key_in_value=_flag("keyInValue", text("keyInValue")),
        secret_file=values.get("secretfile", "").strip() or None,
    )


def _guess(name: str) -> str:
    close = difflib.get_close_matches(name.lower(), [option.name.lower() for option in OPTIONS], 1)
    return next((f" (did you mean {option.name!r}?)" for option in OPTIONS if option.name.lower() in close), "")


def _columns(text: str) -> tuple[str, ...]:
    columns = tuple(part.strip() for part in text.split(","))
    if not all(columns):
        raise UsageError(f"option 'key': {text!r} has an empty column name; write it as one column, or as 'a,b'")
    if len(set(columns)) < len(columns):
        raise UsageError(f"option 'key': {text!r} names a column twice; name each key column once")
    return columns


def _number(name: str, text: str, least: int, most: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise UsageError(f"option {name!r}: {text!r} is no whole number from {least} to {most}")
    return number


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise UsageError(f"option {name!r}: {text!r} is neither true nor false")
    return text.lower() == "true"
