"""The options of the format `phalanx`: what each means, its default, and what is wrong with what was given.

This table is the one place that documents them. Spark passes option names in lower case.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from phalanx.common.errors import UsageError
from phalanx.common.ids import MAX_TTL_MS
from phalanx.common.map_settings import MAX_JOURNAL_EVENTS, DictFormat
from phalanx.common.seeds import parse_members
from phalanx.maps.dict_formats import ARGUMENTS
from phalanx.maps.own_maps import check_not_ours
from phalanx.net.secret import SECRET_FILE_VARIABLE

READ, WRITE, FOLLOW, SINK = "read", "write", "readStream", "writeStream"
READING, WRITING = (READ, FOLLOW), (WRITE, SINK)
ALL = READING + WRITING
APPEND, ERROR, IGNORE = "append", "error", "ignore"
"""The save modes: what a write does if the map has entries."""
EMPTY = "empty"
"""The value of the option that lets a read of an unknown map return no rows instead of an error."""
BY_SETTING = "setting"
"""The value of the option `dicts` that leaves it to the map's setting."""
SETTINGS = "spark.phalanx."
"""What settings of Spark's configuration begin with."""
STREAM_BATCH = "streamBatch"
DEFAULT_KEY = "key"
"""The column that is the key where neither an option nor the map's schema says it."""
_OF_QUERIES = ("checkpointlocation", "queryname")
"""Options of a streaming query that Spark itself uses, and passes on to the sink."""
NO_TABLES = (
    "Spark keeps the options of a table in its catalog to itself: a format written in Python is given none of them when the table is read or "
    "written. What works: CREATE TEMPORARY VIEW name USING phalanx OPTIONS (members '…', map '…') for SELECT and INSERT; or the options "
    "in each statement on a table, SELECT … FROM name WITH (members = '…', map = '…')"
)
"""What to do instead: the end of errors about such tables."""
_BATCH = frozenset((READ, WRITE))
"""The uses of a view in SQL: each is given all options of the view."""
_OF_CATALOG = "option."
"""The prefix of a second name that each option of a table in the catalog has."""


@dataclass(frozen=True)
class Option:
    """One option: its name as documented, where it applies, its default (None: it must be given) and its meaning.

    `is_ours`: this package sets it, no user does. `variable`: of the environment; it counts where no option is given, and before it what
    `setting` of Spark's configuration said when the format was registered.
    """

    name: str
    applies_to: tuple[str, ...]
    default: str | None
    meaning: str
    is_ours: bool = False
    variable: str = ""

    @property
    def setting(self) -> str:
        """Its name in Spark's configuration."""
        return f"{SETTINGS}{self.name}"

    def is_passed_over(self, use: str) -> bool:
        """Return whether a batch read or write ignores this option because only the other one has it.

        A view in SQL hands all its options to both.
        """
        return use in _BATCH and _BATCH & set(self.applies_to) == _BATCH - {use}


OPTIONS = (
    Option(
        "members",
        ALL,
        None,
        "where members listen: host:port,host:port, phalanx://host1,host2/cluster, dns:NAME:PORT or file:PATH; one that answers is enough. By default the "
        "setting spark.phalanx.members when the format is registered, else the variable PHALANX_MEMBERS where Spark was started",
        variable="PHALANX_MEMBERS",
    ),
    Option("map", ALL, None, "name of the map"),
    Option(
        "key",
        ALL,
        DEFAULT_KEY,
        "column that holds the key of the map; several, separated by commas, make a key that is a list. Left out, it is "
        "what the map's schema names, if it has one",
    ),
    Option(
        "cluster",
        ALL,
        "phalanx",
        "name of the cluster; members of another name refuse the connection. The setting spark.phalanx.cluster and the variable "
        "PHALANX_CLUSTER say another default",
        variable="PHALANX_CLUSTER",
    ),
    Option(
        "secretFile",
        ALL,
        f"${SECRET_FILE_VARIABLE}",
        "file with the cluster's secret, at this path on the driver and on every worker; by default the one that the "
        "variable names there, if any",
    ),
    Option(
        "numPartitions",
        READING,
        "0",
        "tasks that read in parallel; 0: two for each member that owns data, and no fewer than the driver has cores",
    ),
    Option(
        "sampleSize", READING, "1000", "entries looked at to infer a schema where none is given and the map has none"
    ),
    Option(
        "pushDown",
        (READ,),
        "false",
        "whether members evaluate filters, or look up the keys that they name. Needs the setting "
        "spark.sql.python.filterPushdown.enabled, and a DataFrame of its own for each filter: Spark 4 applies what it "
        "pushed down in one query of a DataFrame to the other queries of it too",
    ),
    Option(
        "snapshot",
        (READ,),
        "false",
        "whether each partition is read as it was at one moment, when the read was planned; members keep that state until "
        "nobody has read it for the time of their setting staging_ms",
    ),
    Option(
        "ifMissing",
        (READ,),
        "error",
        "the result if the cluster does not know the map, whose name can be misspelt: error, or empty. A map that has lost all "
        "its entries is empty, as long as its members remember it",
    ),
    Option(
        "staged",
        (WRITE,),
        "true",
        "whether rows become visible when the whole job has succeeded, and not at all otherwise; false: as they come, "
        "which takes less memory and time",
    ),
    Option(
        "ifExists",
        (WRITE,),
        "append",
        "what to do if the map has entries: append (insert and update by key), error, or ignore (write nothing)",
    ),
    Option(
        "dicts",
        ALL,
        BY_SETTING,
        "how rows are stored: rows; json, which programs in other languages read, too (their clients of Hazelcast); or setting: as the "
        "map's setting dicts says, and as rows if it has none. With json, "
        "JSON objects are read as rows; columns of dates, decimals or bytes are refused, because JSON has none: cast them to string",
    ),
    Option("ttlMs", WRITING, "0", "milliseconds that the written entries live; 0: for ever"),
    Option(
        "keyInValue",
        WRITING,
        "true",
        "whether the stored rows hold the key columns too; false saves memory, and a read takes them from the key alike",
    ),
    Option(
        "changes",
        (FOLLOW,),
        "false",
        "true: if no schema is given, it is that of the map's changes, not that of its entries. Spark does not say "
        "which is meant; any other option that only readStream has says it too",
    ),
    Option(
        "startingOffsets",
        (FOLLOW,),
        "earliest",
        "where a query without checkpoint begins: earliest (what the journal still has), latest (what comes from now on), "
        "or offsets, as the endOffset in a query's progress and its checkpoint show them",
    ),
    Option(
        "journalCapacity",
        (FOLLOW,),
        "0",
        "events that each partition keeps in the journal that a map without one is given when the stream begins; it holds what happens from "
        "then on. 0: such a map is refused. A journal that is there stays as it is",
    ),
    Option("maxEventsPerTrigger", (FOLLOW,), "0", "changes in one batch at most; 0: all that there are"),
    Option(
        "onOverrun",
        (FOLLOW,),
        "fail",
        "when changes that were not read yet have dropped out of the journal: fail ends the query with their partition and "
        "count; skip continues behind them, and counts them as 'skipped' in the offsets that the query's progress shows",
    ),
    Option(
        "deleteColumn",
        (SINK,),
        "",
        "column that says which rows remove the entry of their key: a boolean, or the kind of a change (removed, expired and "
        "evicted remove); it is not stored. By default no row removes",
    ),
    Option(
        STREAM_BATCH,
        (SINK,),
        "",
        "which batch of which query this is, in a write for foreachBatch: phalanx.spark.each_batch sets it",
        is_ours=True,
    ),
)

_BY_NAME = {option.name.lower(): option for option in OPTIONS}
"""As Spark passes their names: in lower case."""


@dataclass(frozen=True)
class SparkOptions:
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
    snapshot: bool = False
    staged: bool = True
    if_exists: str = APPEND
    if_missing: str = ERROR
    secret_file: str | None = None
    changes: bool = False
    starting_offsets: str = "earliest"
    journal_capacity: int = 0
    max_events_per_trigger: int = 0
    skip_overrun: bool = False
    delete_column: str | None = None
    stream_batch: tuple[str, int] | None = None
    key_is_given: bool = True
    """Whether the option `key` says which columns are the key."""
    dicts: str | None = None
    """How rows are stored, as the option says; None: as the map's setting says."""
    json_dicts: bool = False
    """Whether they are stored as JSON, by the option; after `with_setting` also by the map's setting."""


def describe(use: str) -> str:
    """List the options of a use with their defaults, for an error message."""
    return ", ".join(
        option.name if not option.default else f"{option.name} (default {option.default})"
        for option in OPTIONS
        if use in option.applies_to and not option.is_ours
    )


def find_read_use(given: Mapping[str, str]) -> str:
    """Return whether a schema is for `read` or for `readStream`. Spark does not say it, so the given options decide."""
    following = {option.name.lower() for option in OPTIONS if option.applies_to == (FOLLOW,)}
    return FOLLOW if any(name.lower() in following for name in given) else READ


def find_defaults(setting: Callable[[str], str | None]) -> dict[str, str]:
    """Return the options that Spark's configuration sets. `setting`: returns the value of one of its settings, if any."""
    found = {option.name: setting(option.setting) for option in OPTIONS if option.variable}
    return {name: value for name, value in found.items() if value}


def parse_options(given: Mapping[str, str], use: str, defaults: Mapping[str, str] | None = None) -> SparkOptions:
    """Check the options of a read or a write. Raises `UsageError` that names the option and what to do.

    `defaults`: options that count where none is given, and before the variables of the environment.
    """
    said = {name.lower(): value for name, value in (dict(defaults or {}) | _of_use(given, use)).items()}
    values = _Values(use, said)
    members, cluster = values.text("members"), values.text("cluster")
    try:
        places = parse_members(members)
        if places.cluster is not None and "members" in said and "cluster" not in said:
            cluster = places.cluster  # an address that was given wins over the variable
        cluster = places.cluster_or(cluster)
    except UsageError as error:
        raise UsageError(f"option 'members': {error}") from None
    map_name = values.text("map") if use in READING else check_not_ours(values.text("map"))
    push_down, dicts = values.flag("pushDown"), values.choice("dicts", (BY_SETTING, *ARGUMENTS))
    if push_down and dicts == DictFormat.JSON:
        raise UsageError(
            "option 'pushDown': members do not look into JSON; leave it out where option 'dicts' says json"
        )
    return SparkOptions(
        members=str(places),
        map=map_name,
        key=_columns(values.text("key")),
        cluster=cluster,
        num_partitions=values.number("numPartitions", 0, 100_000),
        sample_size=values.number("sampleSize", 1, 10_000_000),
        push_down=push_down,
        ttl_ms=values.number("ttlMs", 0, MAX_TTL_MS),
        key_in_value=values.flag("keyInValue"),
        snapshot=values.flag("snapshot"),
        staged=values.flag("staged"),
        if_exists=values.choice("ifExists", (APPEND, ERROR, IGNORE)),
        if_missing=values.choice("ifMissing", (ERROR, EMPTY)),
        secret_file=values.raw("secretFile").strip() or None,
        changes=values.flag("changes"),
        starting_offsets=values.text("startingOffsets"),
        journal_capacity=values.number("journalCapacity", 0, MAX_JOURNAL_EVENTS),
        max_events_per_trigger=values.number("maxEventsPerTrigger", 0, 2**31 - 1),
        skip_overrun=values.choice("onOverrun", ("fail", "skip")) == "skip",
        delete_column=values.raw("deleteColumn").strip() or None,
        key_is_given="key" in said,
        dicts=None if dicts == BY_SETTING else dicts,
        json_dicts=dicts == DictFormat.JSON,
        stream_batch=_batch(values.raw(STREAM_BATCH)),
    )


def _of_use(given: Mapping[str, str], use: str) -> dict[str, str]:
    """Return the given options that belong to this use. Raises `UsageError` for one that a user cannot give here."""
    if any(name.lower().startswith(_OF_CATALOG) for name in given):
        raise UsageError(NO_TABLES)
    if not given:
        raise UsageError(f"no option is given (options of a {use}: {describe(use)}); if this is a table: {NO_TABLES}")
    found = {}
    for name, value in given.items():
        if use == SINK and name.lower() in _OF_QUERIES:
            continue
        if name.lower() == "path":
            raise UsageError(
                f"the format phalanx has no paths, and {value!r} was given as one: "
                f"name the map with .option('map', {value!r}) and call load() or save() without an argument"
            )
        option = _BY_NAME.get(name.lower())
        if option is None:
            raise UsageError(f"there is no option {name!r}{_guess(name)}; options of a {use}: {describe(use)}")
        if use in option.applies_to:
            found[name] = value
        elif not option.is_passed_over(use):
            raise UsageError(
                f"option {option.name!r} belongs to a {option.applies_to[0]}, not to a {use}; leave it out "
                f"(options of a {use}: {describe(use)})"
            )
    return found


class _Values:
    """The values of options: as they were said, else as a variable of the environment says, else the default."""

    def __init__(self, use: str, said: Mapping[str, str]) -> None:
        self._use = use
        variables = {option.name: os.environ.get(option.variable) for option in OPTIONS if option.variable}
        self._values = {name.lower(): value for name, value in variables.items() if value} | dict(said)

    def raw(self, name: str) -> str:
        """Return the value as it was written; empty: there is none."""
        return self._values.get(name.lower(), "")

    def text(self, name: str) -> str:
        """Return the value, or the default. Raises `UsageError` if it is missing or empty."""
        option = _BY_NAME[name.lower()]
        value = self._values.get(name.lower(), option.default)
        if value is None or not value.strip():
            state = "missing" if value is None else "empty"
            raise UsageError(
                f"option {name!r} is {state}: {option.meaning}; add .option({name!r}, ...), in SQL OPTIONS ({name} '...') "
                f"(options of a {self._use}: {describe(self._use)})"
            )
        return value.strip()

    def number(self, name: str, least: int, most: int) -> int:
        """Return the value as a whole number. Raises `UsageError` if it is not one from `least` to `most`."""
        text = self.text(name)
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise UsageError(f"option {name!r}: {text!r} is not a whole number from {least} to {most}")
        return number

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return the value in lower case. Raises `UsageError` if it is none of the choices."""
        text = self.text(name)
        if text.lower() not in choices:
            raise UsageError(f"option {name!r}: {text!r} is neither {' nor '.join(choices)}")
        return text.lower()

    def flag(self, name: str) -> bool:
        """Return whether the value is true. Raises `UsageError` if it is neither true nor false."""
        return self.choice(name, ("true", "false")) == "true"


def _guess(name: str) -> str:
    close = difflib.get_close_matches(
        name.lower(), [option.name.lower() for option in OPTIONS if not option.is_ours], 1
    )
    return next((f" (did you mean {option.name!r}?)" for option in OPTIONS if option.name.lower() in close), "")


def _columns(text: str) -> tuple[str, ...]:
    columns = tuple(part.strip() for part in text.split(","))
    if not all(columns):
        raise UsageError(f"option 'key': {text!r} has an empty column name; write it as one column, or as 'a,b'")
    if len(set(columns)) < len(columns):
        raise UsageError(f"option 'key': {text!r} names a column twice; name each key column once")
    return columns


def _batch(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    query, _, number = text.rpartition("/")
    if not query or not number.isdigit():
        raise UsageError(
            f"option {STREAM_BATCH!r}: {text!r} is not a batch of a query; leave it to phalanx.spark.each_batch to set it"
        )
    return query, int(number)
