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
    known = {option.name.lower(): option for option in OPTIONS}
    if any(name.lower().startswith(_OF_CATALOG) for name in given):
        raise UsageError(NO_TABLES)
    if not given:
        raise UsageError(f"no option is given (options of a {use}: {describe(use)}); if this is a table: {NO_TABLES}")
    if use == SINK:
        given = {name: value for name, value in given.items() if name.lower() not in _OF_QUERIES}
    for name, value in given.items():
        if name.lower() == "path":
            raise UsageError(
                f"the format phalanx has no paths, and {value!r} was given as one: "
                f"name the map with .option('map', {value!r}) and call load() or save() without an argument"
            )
        option = known.get(name.lower())
        if option is None:
            raise UsageError(f"there is no option {name!r}{_guess(name)}; options of a {use}: {describe(use)}")
        if use not in option.applies_to and not option.is_passed_over(use):
            raise UsageError(
                f"option {option.name!r} belongs to a {option.applies_to[0]}, not to a {use}; leave it out "
                f"(options of a {use}: {describe(use)})"
            )
    given = {name: value for name, value in given.items() if use in known[name.lower()].applies_to}
    variables = {option.name: os.environ[option.variable] for option in OPTIONS if os.environ.get(option.variable)}
    said = {name.lower(): value for name, value in (dict(defaults or {}) | dict(given)).items()}
    values = {name.lower(): value for name, value in variables.items()} | said

    def text(name: str) -> str:
        option = known[name.lower()]
        value = values.get(name.lower(), option.default)
        if value is None or not value.strip():
            state = "missing" if value is None else "empty"
            raise UsageError(
                f"option {name!r} is {state}: {option.meaning}; add .option({name!r}, ...), in SQL OPTIONS ({name} '...') "
                f"(options of a {use}: {describe(use)})"
            )
        return value.strip()

    members, cluster = text("members"), text("cluster")
    try:
        places = parse_members(members)
        if places.cluster is not None and "members" in said and "cluster" not in said:
            cluster = places.cluster  # an address that was given wins over the variable
        cluster = places.cluster_or(cluster)
    except UsageError as error:
        raise UsageError(f"option 'members': {error}") from None
    map_name = text("map") if use in READING else check_not_ours(text("map"))
    push_down, dicts = _flag("pushDown", text("pushDown")), _choice("dicts", text("dicts"), (BY_SETTING, *ARGUMENTS))
    if push_down and dicts == DictFormat.JSON:
        raise UsageError(
            "option 'pushDown': members do not look into JSON; leave it out where option 'dicts' says json"
        )
    return SparkOptions(
        members=str(places),
        map=map_name,
        key=_columns(text("key")),
        cluster=cluster,
        num_partitions=_number("numPartitions", text("numPartitions"), 0, 100_000),
        sample_size=_number("sampleSize", text("sampleSize"), 1, 10_000_000),
        push_down=push_down,
        ttl_ms=_number("ttlMs", text("ttlMs"), 0, MAX_TTL_MS),
        key_in_value=_flag("keyInValue", text("keyInValue")),
        snapshot=_flag("snapshot", text("snapshot")),
        staged=_flag("staged", text("staged")),
        if_exists=_choice("ifExists", text("ifExists"), (APPEND, ERROR, IGNORE)),
        if_missing=_choice("ifMissing", text("ifMissing"), (ERROR, EMPTY)),
        secret_file=values.get("secretfile", "").strip() or None,
        changes=_flag("changes", text("changes")),
        starting_offsets=text("startingOffsets"),
        journal_capacity=_number("journalCapacity", text("journalCapacity"), 0, MAX_JOURNAL_EVENTS),
        max_events_per_trigger=_number("maxEventsPerTrigger", text("maxEventsPerTrigger"), 0, 2**31 - 1),
        skip_overrun=_choice("onOverrun", text("onOverrun"), ("fail", "skip")) == "skip",
        delete_column=values.get("deletecolumn", "").strip() or None,
        key_is_given="key" in values,
        dicts=None if dicts == BY_SETTING else dicts,
        json_dicts=dicts == DictFormat.JSON,
        stream_batch=_batch(values.get(STREAM_BATCH.lower(), "")),
    )


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


def _number(name: str, text: str, least: int, most: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise UsageError(f"option {name!r}: {text!r} is not a whole number from {least} to {most}")
    return number


def _choice(name: str, text: str, choices: tuple[str, ...]) -> str:
    if text.lower() not in choices:
        raise UsageError(f"option {name!r}: {text!r} is neither {' nor '.join(choices)}")
    return text.lower()


def _batch(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    query, _, number = text.rpartition("/")
    if not query or not number.isdigit():
        raise UsageError(
            f"option {STREAM_BATCH!r}: {text!r} is not a batch of a query; leave it to phalanx.spark.each_batch to set it"
        )
    return query, int(number)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise UsageError(f"option {name!r}: {text!r} is neither true nor false")
    return text.lower() == "true"
