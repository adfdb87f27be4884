"""Options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from phalanx.common.errors import UsageError
from phalanx.common.seeds import URL, GivenMembers, parse_members
from phalanx.net.secret import SECRET_FILE_VARIABLE


def use_address(context: typer.Context, given: str) -> str:
    """Return the addresses of `phalanx://host1,host2/cluster`, whose name is the one of `--cluster`, too. Raises `UsageError`."""
    if not given.strip().startswith(URL):
        return given
    members = parse_members(given)
    context.meta[URL] = members
    if "cluster" in context.params:  # `--cluster` stands before `--at`
        context.params["cluster"] = _name_of_cluster(context, members, context.params["cluster"])
    return str(members)


def _use_cluster(context: typer.Context, given: str) -> str:
    members: GivenMembers | None = context.meta.get(URL)
    return given if members is None else _name_of_cluster(context, members, given)


def _name_of_cluster(context: typer.Context, members: GivenMembers, given: str) -> str:
    """Return the name of the cluster: `--at phalanx://…/NAME` wins over the variable, and must not contradict `--cluster`."""
    source = context.get_parameter_source("cluster")
    if members.cluster is not None and is_at_given(context) and source is not None and source.name == "ENVIRONMENT":
        return members.cluster
    return members.cluster_or(given)


AT_VARIABLE = "PHALANX_AT"
"""Whom commands ask that are not told by `--at`."""
At = Annotated[
    str,
    typer.Option(
        "--at",
        metavar="HOST:PORT",
        envvar=AT_VARIABLE,
        help="Address of any member; several, separated by commas; also dns:NAME:PORT, file:PATH and phalanx://HOST,HOST/CLUSTER.",
        callback=use_address,
    ),
]
ClusterName = Annotated[
    str, typer.Option("--cluster", envvar="PHALANX_CLUSTER", help="Name of the cluster.", callback=_use_cluster)
]


def is_at_given(context: typer.Context) -> bool:
    """Return whether the command line names whom to ask, for a command that can do without."""
    source = context.get_parameter_source("at")
    return source is not None and source.name == "COMMANDLINE"


def _use_secret_file(context: typer.Context, path: Path | None) -> Path | None:
    """Set the environment variable of the secret's file, so that whatever the command asks uses it, from any thread."""
    if path is not None:
        if not path.exists():
            raise UsageError(f"--secret-file: cannot read {path}: No such file or directory")
        before = os.environ.get(SECRET_FILE_VARIABLE)
        os.environ[SECRET_FILE_VARIABLE] = str(path)
        context.call_on_close(lambda: _restore(before))
    return path


def _restore(before: str | None) -> None:
    if before is None:
        os.environ.pop(SECRET_FILE_VARIABLE, None)
    else:
        os.environ[SECRET_FILE_VARIABLE] = before


SecretFile = Annotated[
    Path | None,
    typer.Option(
        "--secret-file",
        metavar="FILE",
        help=f"File with the cluster's secret; without it, the one that {SECRET_FILE_VARIABLE} names, if any.",
        callback=_use_secret_file,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="For programs: print JSON on stdout, and nothing else.")]
