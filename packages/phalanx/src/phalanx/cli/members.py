"""`phalanx members`: who is in the cluster, as one member has it."""

from __future__ import annotations

from typing import Annotated

import typer

from phalanx.cli.departing import forget, leave, show_away
from phalanx.cli.losses import show_losses
from phalanx.cli.options import At, ClusterName, Json, SecretFile
from phalanx.cli.output import EscapedText, console, print_json, table
from phalanx.cli.until_done import change_lite
from phalanx.client.ask import Inquirer, ask_any
from phalanx.common.errors import UnavailableError, UsageError
from phalanx.common.ids import MemberId, address_of, incarnation_of
from phalanx.common.restart_wait import wait_in_words
from phalanx.common.seeds import DEFAULT_MEMBERS
from phalanx.common.traits import USUAL
from phalanx.common.view import MembersView
from phalanx.reports.losses import as_objects
from phalanx.reports.members import as_object, away_as_object, version_words
from phalanx.reports.partitions import wait_as_object
from phalanx.wire.messages import LossesReply, MembersReply


def members(
    at: At = DEFAULT_MEMBERS,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    json: Json = False,
    promote: Annotated[
        str | None, typer.Option(metavar="H:P", help="Let this lite member hold its share of the data.")
    ] = None,
    demote: Annotated[
        str | None,
        typer.Option(metavar="H:P", help="Let other members take over the data of this member: then it is lite."),
    ] = None,
    leave_for_good: Annotated[
        str | None,
        typer.Option(
            "--leave",
            metavar="H:P",
            help="Let this member hand over all that it holds, also if it has a folder, and end its process.",
        ),
    ] = None,
    forget_member: Annotated[
        str | None,
        typer.Option(
            "--forget",
            metavar="H:P",
            help="Await this member no more, which keeps in its folder what it held: it never comes back.",
        ),
    ] = None,
    accept_as_stable: Annotated[
        bool,
        typer.Option(
            "--accept-as-stable",
            help="DANGEROUS: from now on, a majority is a majority of the present list. Use it only if the missing members are "
            "gone for good: if they still run, both sides acknowledge writes.",
        ),
    ] = False,
    raise_cluster_version: Annotated[
        bool,
        typer.Option(
            "--raise-cluster-version",
            help="Let members use the newest version of the protocol that all of them speak. Then members of older releases "
            "can no longer join.",
        ),
    ] = False,
    hold_cluster_version: Annotated[
        bool | None,
        typer.Option(
            "--hold-cluster-version/--no-hold-cluster-version",
            help="Use it before an upgrade that you perhaps undo: no master raises the cluster version by itself, until you "
            "allow it again.",
        ),
    ] = None,
) -> None:
    """Show the member list, oldest first, as the asked member knows it."""
    of_one = (promote, demote, leave_for_good, forget_member)
    if sum(map(bool, (*of_one, accept_as_stable, raise_cluster_version, hold_cluster_version is not None))) > 1:
        raise UsageError(
            "give one of --promote, --demote, --leave, --forget, --accept-as-stable, --raise-cluster-version and "
            "--hold-cluster-version"
        )
    if of := promote or demote:
        change_lite(at, cluster, of, lite=demote is not None)
    elif leave_for_good:
        leave(at, cluster, leave_for_good)
        return
    elif forget_member:
        forget(at, cluster, forget_member)

    if raise_cluster_version or hold_cluster_version is not None:
        master = address_of(ask_any(at, cluster, Inquirer.members).view.master)
        if raise_cluster_version:
            ask_any(master, cluster, Inquirer.raise_cluster_version)
        else:
            holds = bool(hold_cluster_version)
            ask_any(master, cluster, lambda inquirer: inquirer.hold_cluster_version(holds))
    if accept_as_stable:
        present = ask_any(at, cluster, Inquirer.members).view
        ask_any(address_of(present.master), cluster, lambda inquirer: inquirer.accept_view(present.version))

    def ask(inquirer: Inquirer) -> tuple[MemberId, MembersReply, LossesReply]:
        reply = inquirer.members()
        return inquirer.member(), reply, inquirer.losses()

    asked, reply, losses = ask_any(at, cluster, ask)
    view, suspected = reply.view, reply.suspected
    waits_for = reply.raise_waits_for or _what_master_waits_for(asked, view, cluster)
    if json:
        wait = {"restart_wait": wait_as_object(reply.restart_wait), "awaited": list(map(away_as_object, reply.away))}
        print_json(as_object(cluster, asked, view, suspected, waits_for) | wait | as_objects(losses))
        return
    has_zones = any(view.traits_of(member).zone for member in view.members)
    head = f"Members {{size:{len(view.members)}, ver:{view.version}}}"
    rows = table(head, "age", "address", "incarnation", "release", *(["zone"] if has_zones else []), "")
    for age, member in enumerate(view.members, 1):
        traits = view.traits_of(member)
        marks = [
            "master" if member == view.master else "",
            "asked" if member == asked else "",
            "lite" if traits.lite else "",
            f"weight {traits.weight:g}" if traits.weight != USUAL.weight else "",
            "suspected" if member in suspected else "",
        ]
        zone = [traits.zone] if has_zones else []
        marked = EscapedText(", ".join(mark for mark in marks if mark))
        marked.highlight_words(["suspected"], "red")
        release = view.all_releases()[member].name
        rows.add_row(str(age), address_of(member), incarnation_of(member), release, *zone, marked)
    console().print(rows)
    console().print(EscapedText(version_words(view, waits_for)))
    if reply.restart_wait is not None:
        said = wait_in_words(reply.restart_wait)
        console().print(EscapedText(f"{said[0].upper()}{said[1:]}.", style="yellow"))
    show_away(reply)
    show_losses(losses, at)


def _what_master_waits_for(asked: MemberId, view: MembersView, cluster: str) -> str:
    """Return why the master does not raise the cluster version, if the member that was asked is another one; empty: not told."""
    newest = max(release.newest for release in view.all_releases().values())
    if asked == view.master or newest <= view.cluster_version:
        return ""
    try:
        return ask_any(address_of(view.master), cluster, Inquirer.members).raise_waits_for
    except UnavailableError:  # it has just ended, or this machine does not reach it
        return ""
