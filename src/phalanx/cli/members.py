"""`phalanx members`: who is in the cluster, as one member has it."""

from __future__ import annotations

from typing import Any

from phalanx.cli.options import At, ClusterName, Json, ask_any
from phalanx.cli.output import console, print_json, table
from phalanx.client.ask import Inquirer
from phalanx.common.ids import MemberId, address_of, incarnation_of
from phalanx.common.view import MembersView


def members(at: At, cluster: ClusterName = "phalanx", json: Json = False) -> None:
    """Show the member list, oldest first, as the member asked has it."""

    def ask(inquirer: Inquirer) -> tuple[MemberId, MembersView, list[MemberId]]:
        reply = inquirer.members()
        return inquirer.member(), reply.view, reply.suspected

    asked, view, suspected = ask_any(at, cluster, ask)
    if json:
        print_json(_as_object(cluster, asked, view, suspected))
        return
    rows = table(f"Members {{size:{len(view.members)}, ver:{view.version}}}", "age", "address", "incarnation", "")
    for age, member in enumerate(view.members, 1):
        marks = [
            "master" if member == view.master else "",
            "asked" if member == asked else "",
            "[red]suspected[/red]" if member in suspected else "",
        ]
        rows.add_row(str(age), address_of(member), incarnation_of(member), ", ".join(mark for mark in marks if mark))
    console().print(rows)


def _as_object(cluster: str, asked: MemberId, view: MembersView, suspected: list[MemberId]) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "asked": asked,
        "size": len(view.members),
        "version": view.version,
        "maker": view.maker,
        "master": view.master,
        "members": [
            {
                "member": member,
                "address": address_of(member),
                "incarnation": incarnation_of(member),
                "master": member == view.master,
                "suspected": member in suspected,
            }
            for member in view.members
        ],
    }
