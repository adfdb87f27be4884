"""`phalanx map settings|schema|backups|protect|merge-policy|max-entries|max-bytes|eviction|max-idle|dicts|durability`: what maps are to be like, shown and changed while they are used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import typer

from phalanx.cli.app import fail
from phalanx.cli.failures import note
from phalanx.cli.hints import find_misspelt, find_no_map
from phalanx.cli.maps import app as app
from phalanx.cli.maps import connect
from phalanx.cli.options import At, ClusterName, Json, SecretFile
from phalanx.cli.output import print_json, print_line
from phalanx.client.ask import Inquirer, ask_any, find_master
from phalanx.client.schemas import change_schema
from phalanx.common.backups import MAX_BACKUPS, BackupCount
from phalanx.common.errors import UsageError
from phalanx.common.ids import address_of
from phalanx.common.map_plan import MapPlan, matches
from phalanx.common.map_settings import (
    EVICTION_POLICIES,
    MAP_SETTINGS,
    MAX_MINIMUM,
    MERGE_POLICIES,
    MapChange,
    Protection,
    check_change,
)
from phalanx.common.seeds import DEFAULT_MEMBERS
from phalanx.common.words import quoted, shown
from phalanx.maps.requests import idle_to_ms
from phalanx.reports.maps import OTHERS, schema_as_object, settings_as_object, settings_of

MOST_SHOWN = 2_000
"""Characters of one setting that are shown among the others: a schema can have many more."""

PatternOrNone = Annotated[
    str | None,
    typer.Argument(help="Name of the map, or the beginning of names and *; without it: all other maps."),
]
Pattern = Annotated[
    str, typer.Argument(help="Name of the map, or the beginning of names and *; only *: all other maps.")
]


@app.command()
def settings(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Name of the map, or the beginning of names and *; without it: all that have settings of their own."
        ),
    ] = None,
    at: At = DEFAULT_MEMBERS,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Show backups, protection, merge policy, bound, idle time, format of dicts, durability, schema and journal of one map, or of all that have settings of their own."""
    check_name(name)
    plan = ask_plan(at, cluster)
    found_settings = settings_of(plan, name)
    if name and (hint := hint_at_no_map(at, cluster, name, plan)):
        note(hint)
    if json:
        print_json({each: settings_as_object(found) for each, found in found_settings.items()})
        return
    for each, found in found_settings.items():
        print(shown(each))
        for field, setting in MAP_SETTINGS.items():
            print(f"  {setting.words:<14}{shown(setting.in_words(getattr(found, field)), MOST_SHOWN)}")


@app.command()
def schema(
    name: Annotated[str, typer.Argument(help="Name of the map.")],
    at: At = DEFAULT_MEMBERS,
    clear: Annotated[
        bool, typer.Option("--clear", help="Remove it: then readers infer a schema from the entries.")
    ] = False,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Print the schema of the map's rows, which writes of Spark store, one column a line: name, type, and whether it is of the key. Status 1 if it has none."""
    check_name(name)
    if clear:
        with connect(at, cluster) as grid:
            change_schema(grid, name, lambda _: "")
    plan = ask_plan(at, cluster)
    text = plan.of(name).schema
    description = schema_as_object(text)
    if json:
        arrow = msgspec.json.decode(text) if text else None
        print_json({"map": name, "schema": description and description | {"arrow": arrow}})
    elif description is not None:
        for column in description["columns"]:
            print_line(column["name"], column["type"], *(["key"] if column["name"] in description["key"] else []))
    if description is None and not clear:
        hint = hint_at_no_map(at, cluster, name, plan)
        fail(
            f"map {quoted(name)} has no schema: a write of Spark into an empty map stores one, and so does one with mode overwrite"
            f"{f'; {hint}' if hint else ''}"
        )


@app.command()
def backups(
    name: PatternOrNone = None,
    at: At = DEFAULT_MEMBERS,
    synchronous: Annotated[
        int | None, typer.Option("--sync", min=0, max=MAX_BACKUPS, help="Backups that confirm every write.")
    ] = None,
    asynchronous: Annotated[
        int | None,
        typer.Option("--async", min=0, max=MAX_BACKUPS, help="Further backups, for which no write waits."),
    ] = None,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Show how many backups maps have, or change the number while programs use them. Migrations then add or remove replicas."""
    check_name(name)
    plan = ask_plan(at, cluster)
    if synchronous is not None or asynchronous is not None:
        now = plan.of(name or "*").backups
        wanted = BackupCount(
            now.synchronous if synchronous is None else synchronous,
            now.asynchronous if asynchronous is None else asynchronous,
        )
        plan = ask_change(at, cluster, name or "*", MapChange(backups=wanted))
    elif name and (hint := hint_at_no_map(at, cluster, name, plan)):
        note(hint)
    counts = {"usual": plan.usual.backups, **{each: plan.of(each).backups for each, _ in plan.maps}}
    if json:
        print_json(
            {each: {"sync": count.synchronous, "async": count.asynchronous} for each, count in counts.items()}
        )  # fmt: skip
    else:
        others = OTHERS if plan.maps else "(all maps)"
        del counts["usual"]
        for each, count in (*counts.items(), (others, plan.usual.backups)):
            print_line(each, f"{count.synchronous} synchronous", f"{count.asynchronous} asynchronous")


@app.command()
def protect(
    name: Pattern,
    at: At = DEFAULT_MEMBERS,
    minimum: Annotated[
        int | None,
        typer.Option(min=0, max=MAX_MINIMUM, help="Refuse while fewer members hold data; 0: no such number."),
    ] = None,
    majority: Annotated[
        bool, typer.Option("--majority", help="Refuse on a side without the majority of the last stable member list.")
    ] = False,
    off: Annotated[bool, typer.Option("--off", help="Turn the protection off.")] = False,
    reads: Annotated[
        bool,
        typer.Option("--reads", help="Refuse only reads; with --writes, or without both options: reads and writes."),
    ] = False,
    writes: Annotated[bool, typer.Option("--writes", help="Refuse only writes.")] = False,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Let a map refuse calls on a side of the cluster that is too small. This replaces its former protection."""
    check_name(name)
    if off and (minimum is not None or majority or reads or writes):
        raise UsageError("--off cannot be combined with --minimum, --majority, --reads and --writes")
    if not off and minimum is None and not majority:
        raise UsageError("give --minimum, --majority or both, or --off")
    both = reads == writes
    wanted = Protection() if off else Protection(minimum or 0, majority, reads or both, writes or both)
    plan = ask_change(at, cluster, name, MapChange(protection=wanted))
    _print_settings(plan, name, ("protection", "merge_policy"), json=json)
    here = len(ask_any(at, cluster, Inquirer.placement).view.data_members)
    if wanted.is_on and here < wanted.minimum:
        many = f"{here} {'is' if here == 1 else 'are'} here"
        note(
            f"map {quoted(name)} refuses calls now: it needs at least {wanted.minimum} members that hold data, and {many}"
        )


class ValueCommand(NamedTuple):
    """A command that gives a map one simple setting (`MAP_SETTINGS`)."""

    setting: str
    argument: str
    """The name of the value, as help and errors have it."""
    argument_help: str
    help: str
    shows: tuple[str, ...]
    """The settings that it shows afterwards."""


_BOUND: Final = ("max_entries", "max_bytes", "eviction")
VALUE_COMMANDS: Final = (
    ValueCommand(
        "merge_policy", "policy", f"One of {', '.join(MERGE_POLICIES)}.",
        "Set how the map's entries are merged when two sides of a cluster find each other again.",
        ("protection", "merge_policy"),
    ),
    ValueCommand(
        "max_entries", "entries", "The most entries; 0: any number.",
        "Limit the entries of a map: each partition holds its share of them, at least 1, and evicts entries if it has more.",
        _BOUND,
    ),
    ValueCommand(
        "max_bytes", "bytes", "The most bytes; 0: any number.",
        "Limit the bytes of keys and values of a map: each partition holds its share of them, or 1 entry, and evicts entries if "
        "it has more.",
        _BOUND,
    ),
    ValueCommand(
        "eviction", "policy", f"One of {', '.join(EVICTION_POLICIES)}.",
        "Set which entries of a bounded map are evicted first.",
        _BOUND,
    ),
    ValueCommand(
        "max_idle_ms", "seconds", "Seconds without a read or write; 0: entries do not expire.",
        "Let entries that are stored from now on expire if nobody reads or writes them for this many seconds. Entries that are "
         "stored with their own idle time keep it.",
         ("max_idle_ms",),
    ),
    ValueCommand(
        "dicts", "format", "rows; json, which programs in all languages can read; any: each program chooses.",
        "Set how programs store dicts in the map from now on. Stored values do not change, and can still be read.",
        ("dicts",),
    ),
    ValueCommand(
        "durability", "mode", "interval: writes wait for no sync; always: for the syncs of all that confirm them.",
        "Set what writes of the map wait for, where members have a data_dir. The answer comes when every member works by it.",
        ("durability",),
    ),
)  # fmt: skip


def _add(command: ValueCommand) -> None:
    setting = MAP_SETTINGS[command.setting]
    name_of_command = command.setting.removesuffix("_ms")
    is_duration = name_of_command != command.setting

    @app.command(name_of_command.replace("_", "-"), help=command.help)
    def change(
        name: Pattern,
        value: Any,
        at: At = DEFAULT_MEMBERS,
        cluster: ClusterName = "phalanx",
        secret_file: SecretFile = None,
        json: Json = False,
    ) -> None:
        check_name(name)
        if is_duration:
            value = idle_to_ms(value or None)
        plan = ask_change(at, cluster, name, MapChange(**{command.setting: value}))
        _print_settings(plan, name, command.shows, json=json)

    most = setting.most / 1000 if is_duration else setting.most
    change.__annotations__["value"] = Annotated[
        float if is_duration else int if most else str,
        typer.Argument(metavar=command.argument, min=0 if most else None, max=most or None, help=command.argument_help),
    ]


for _command in VALUE_COMMANDS:
    _add(_command)


def _print_settings(plan: MapPlan, name: str, fields: Sequence[str], *, json: bool) -> None:
    """Print these settings as a map has them now, and whose settings did not change; or all of the map's settings as JSON."""
    ((shown_as, found),) = settings_of(plan, name).items()
    if json:
        print_json({shown_as: settings_as_object(found)})
        return
    print_line(
        shown_as,
        *(f"{MAP_SETTINGS[each].words} {MAP_SETTINGS[each].in_words(getattr(found, each))}" for each in fields),
    )
    if "*" in name[:-1]:
        print(
            f"this sets {'maps whose names begin exactly like this' if name.endswith('*') else 'the map with exactly this name'}: only a * at the "
            f"end matches other names"
        )
    others = [each for each, _ in plan.maps if each != name and (name == "*" or matches(name, each))]
    if others:
        print_line(f"not changed, because they have settings of their own: {', '.join(others)}")


def check_name(name: str | None) -> None:
    """Refuse an empty name, such as that of a variable that a script has not set: it must not mean all maps.

    Raises `UsageError`.
    """
    if name == "":
        raise UsageError("the name of the map is empty: for all maps without settings of their own, give '*'")


def ask_plan(at: str, cluster: str) -> MapPlan:
    """Ask a member for the settings in its partition table; if it has none yet, ask the master."""
    placement = ask_any(at, cluster, Inquirer.placement)
    if not placement.table.version:
        placement = ask_any(address_of(placement.view.master), cluster, Inquirer.placement)
    return placement.table.maps


def hint_at_no_map(at: str, cluster: str, name: str, plan: MapPlan) -> str:
    """Say that there is no such map, and which there are; empty: it has entries or settings of its own, or a pattern was given."""
    if name.endswith("*") or name in dict(plan.maps):
        return ""
    with connect(at, cluster) as grid:
        return find_no_map(grid.map(name))


def ask_change(at: str, cluster: str, name: str, change: MapChange) -> MapPlan:
    """Ask the master, whom the member at the address names; return the settings afterwards. Print a note if the name is perhaps misspelt."""
    check_change(name, change)
    master = find_master(at, cluster)
    ask_any(master, cluster, lambda inquirer: inquirer.change_map(name, change))
    if not name.endswith("*"):
        with connect(at, cluster) as grid:
            if hint := find_misspelt(grid.map(name)):
                note(hint)
    return ask_any(master, cluster, Inquirer.placement).table.maps
