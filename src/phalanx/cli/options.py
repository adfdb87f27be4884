"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from phalanx.client.ask import DEFAULT_TIMEOUT_S, Inquirer
from phalanx.common.errors import ConnectError
from phalanx.common.ids import parse_addresses

At = Annotated[
    str, typer.Option("--at", metavar="HOST:PORT", help="Address of any member; several, separated by commas.")
]
ClusterName = Annotated[str, typer.Option("--cluster", help="Name of the cluster.")]
Json = Annotated[bool, typer.Option("--json", help="For machines: JSON on stdout, nothing else there.")]

T = TypeVar("T")


def ask_any(at: str, cluster: str, ask: Callable[[Inquirer], T]) -> T:
    """The answer of the first of the addresses that answers. Raises `ConnectError` that says why each did not."""
    problems = []
    for address in parse_addresses(at):
        with Inquirer(address, cluster=cluster, timeout_s=DEFAULT_TIMEOUT_S) as inquirer:
            try:
                return ask(inquirer)
            except ConnectError as error:
                problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    raise ConnectError("; ".join(map(str, problems)))
