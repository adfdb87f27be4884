"""`phalanx map increment|update|update-where|ttl`: change entries where they live, or how long they live."""

from __future__ import annotations

from typing import Annotated

import typer

from phalanx.cli.app import fail
from phalanx.cli.map_journal import app as app
from phalanx.cli.maps import Key, KeyOption, Name, connect, fail_missing
from phalanx.cli.options import At, ClusterName, Json, SecretFile
from phalanx.cli.output import print_json
from phalanx.common.errors import UpdateFailed, UsageError
from phalanx.common.seeds import DEFAULT_MEMBERS
from phalanx.reports.entries import KeyType, to_key, to_value
from phalanx.reports.value_json import as_text

Condition = Annotated[
    str,
    typer.Argument(help="Such as \"price > 10 and city in ('Oslo', 'Rome')\"; fields, key, value; true: every entry."),
]
Number = Annotated[str, typer.Option("--by", metavar="NUMBER", help="The number to add; it can be negative.")]
KeptTtl = Annotated[
    float | None, typer.Option(help="Seconds after which the entry expires, from now on.", show_default="as it was")
]


@app.command()
def increment(
    name: Name,
    key: Key,
    at: At = DEFAULT_MEMBERS,
    by: Number = "1",
    key_type: KeyOption = KeyType.STR,
    ttl: KeptTtl = None,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Add to the number of a key, in one step, and print the sum. A key without a value counts as 0."""
    wanted, number = to_key(key, key_type), to_value(by)
    with connect(at, cluster) as grid:
        total = grid.map(name).increment(wanted, by=number, ttl=ttl)
    if json:
        print_json({"map": name, "key": wanted, "value": total})
    else:
        print(as_text(total))


@app.command()
def update(
    name: Name,
    key: Key,
    function: Annotated[
        str,
        typer.Argument(
            help="append, extend, add_to_set, discard, merge, increment, max, min, get_and_put, get_and_replace, remove_if."
        ),
    ],
    at: At = DEFAULT_MEMBERS,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENTS…", help="Each JSON if it is JSON, else text.")
    ] = None,
    key_type: KeyOption = KeyType.STR,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Let a function change the value of a key, in one step, and print its result."""
    wanted, given = to_key(key, key_type), [to_value(argument) for argument in arguments or ()]
    with connect(at, cluster) as grid:
        result = grid.map(name).update(wanted, function, *given)
    if json:
        print_json({"map": name, "key": wanted, "result": result})
    else:
        print(as_text(result))


@app.command("update-where")
def update_where(
    name: Name,
    condition: Condition,
    function: Annotated[str, typer.Argument(help="A function of `update`, or one that the members have.")],
    at: At = DEFAULT_MEMBERS,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENTS…", help="Each JSON if it is JSON, else text.")
    ] = None,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Let a function change each entry that fulfils a condition, once, and print how many were changed. Entries that it refuses
    do not change; then the status is 1.
    """
    given = [to_value(argument) for argument in arguments or ()]
    refused: UpdateFailed | None = None
    with connect(at, cluster) as grid:
        try:
            changed = grid.map(name).update_where(condition, function, *given)
        except UpdateFailed as error:
            refused, changed = error, error.changed
    if json:
        print_json({"map": name, "changed": changed, "refused": refused.failed if refused is not None else 0})
    else:
        print(changed)
    if refused is not None:
        fail(str(refused))


@app.command()
def ttl(
    name: Name,
    key: Key,
    at: At = DEFAULT_MEMBERS,
    seconds: Annotated[
        float | None, typer.Option("--set", metavar="SECONDS", help="Let the entry expire this many seconds from now.")
    ] = None,
    for_ever: Annotated[bool, typer.Option("--for-ever", help="Let the entry never expire.")] = False,
    key_type: KeyOption = KeyType.STR,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
) -> None:
    """Print how many seconds an entry still lives, or change that; status 1 if there is none."""
    if seconds is not None and for_ever:
        raise UsageError("--set and --for-ever exclude each other: give one of them")
    wanted = to_key(key, key_type)
    with connect(at, cluster) as grid:
        entries = grid.map(name)
        if for_ever:
            entries.persist(wanted)
        elif seconds is not None:
            entries.touch(wanted, seconds)
        try:
            left = entries.time_to_live(wanted)
        except KeyError:
            fail_missing(entries, key, key_type, wanted)
    if json:
        print_json({"map": name, "key": wanted, "seconds": left})
    else:
        print("for ever" if left is None else f"{left:.3f}")
