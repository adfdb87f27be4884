"""`phalanx safe`: can this member be stopped now?"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from phalanx.cli.failures import FAILED
from phalanx.cli.losses import show_losses
from phalanx.cli.options import AT_VARIABLE, ClusterName, Json, SecretFile, use_address
from phalanx.cli.output import EscapedText, console, print_json
from phalanx.client.ask import Inquirer, ask_any, ask_each, ask_member
from phalanx.common.errors import UsageError
from phalanx.common.ids import Address, MemberId, address_of
from phalanx.common.seeds import DEFAULT_MEMBERS
from phalanx.net.seed_lookups import find_addresses
from phalanx.reports.losses import as_objects
from phalanx.reports.power import judge_power, power_as_object
from phalanx.reports.safety import Judgement, MasterSays, Reason, as_object, judge
from phalanx.wire.messages import LossesReply, SafetyReply

ASK_AGAIN_AFTER_S = 0.5
"""While `--wait` waits."""


def safe(
    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="HOST:PORT",
            envvar=AT_VARIABLE,
            help="The member that you want to stop.",
            callback=use_address,
        ),
    ] = DEFAULT_MEMBERS,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    graceful: Annotated[bool, typer.Option("--graceful", help="Judge a stop with SIGTERM instead of a kill.")] = False,
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="The most seconds to wait until it is safe.")
    ] = 0,
    power: Annotated[
        bool,
        typer.Option(
            "--power",
            help="Judge a loss of power of all members at once instead: what would not come back from their folders?",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Tell whether you can kill a member now, or stop it gracefully, without losing data; status 0 if so, 1 if not.

    It is safe to kill it if others have all its data, and no migration is running. SIGTERM is safe earlier, because the member
    then hands over its data before it leaves. Earlier losses are shown too, but do not change the status.
    """
    addresses = find_addresses(at)
    if power:
        if graceful or wait:
            raise UsageError("--power judges all members now: give it without --graceful and --wait")
        _show_power(addresses, cluster, json=json)
        return
    if len(addresses) != 1:
        raise UsageError("give the address of one member: the one that you want to stop")
    deadline = time.monotonic() + wait
    while True:
        found, own, losses = _ask(addresses[0], cluster)
        is_safe = found.may_leave if graceful else found.may_be_killed
        if is_safe or time.monotonic() >= deadline:
            break
        time.sleep(min(ASK_AGAIN_AFTER_S, max(deadline - time.monotonic(), 0)))
    if json:
        print_json(as_object(found, own) | as_objects(losses))
    else:
        _show(found)
        show_losses(losses, addresses[0])
    if not is_safe:
        raise typer.Exit(FAILED)


def _show_power(addresses: list[Address], cluster: str, *, json: bool) -> None:
    """Show whether all members can lose power now. Exit with status 1 if more would be lost than the last moment."""
    placement = ask_any(addresses, cluster, Inquirer.placement)
    found = judge_power(placement, ask_each(placement.view.members, cluster, Inquirer.safety))
    if json:
        print_json(power_as_object(found))
    else:
        out = console()
        if found.against:
            out.print(EscapedText("✗ Do not switch everything off now:", style="bold red"))
            _show_reasons(found.against)
        else:
            out.print(
                EscapedText("✓ All members can lose power now, and come back with their data.", style="bold green")
            )
        for note in found.notes:
            out.print(EscapedText(f"  {note}", style="dim"))
        for advice in dict.fromkeys(reason.advice for reason in found.against):
            out.print(EscapedText(f"→ {advice}"))
    if found.against:
        raise typer.Exit(FAILED)


def _ask(address: Address, cluster: str) -> tuple[Judgement, SafetyReply, LossesReply]:
    with Inquirer(address, cluster=cluster) as inquirer:
        member, own, losses = inquirer.member(), inquirer.safety(), inquirer.losses()
    return judge(member, own, _ask_master(own.view.master, cluster)), own, losses


def _ask_master(master: MemberId, cluster: str) -> MasterSays | None:
    says = ask_member(master, cluster, lambda asked: MasterSays(asked.member(), asked.migrations(), asked.safety()))
    # Another incarnation at its address: that one follows the present master.
    return says if says is not None and says.member == master else None


def _show(found: Judgement) -> None:
    out, name = console(), address_of(found.member)
    if found.may_be_killed:
        out.print(EscapedText(f"✓ You can kill {name} now: nothing would be lost.", style="bold green"))
    else:
        out.print(EscapedText(f"✗ Do not kill {name} now:", style="bold red"))
        _show_reasons(found.against_kill)
    if found.may_leave:
        out.print(EscapedText("✓ You can stop it gracefully (SIGTERM).", style="green"))
    else:
        out.print(EscapedText("✗ Do not stop it gracefully (SIGTERM) now:", style="bold red"))
        _show_reasons(found.against_leaving)
    for note in found.notes:
        out.print(EscapedText(f"  {note}", style="dim"))
    advices = dict.fromkeys(reason.advice for reason in found.against_kill + found.against_leaving)
    for advice in advices:
        out.print(EscapedText(f"→ {advice}"))


def _show_reasons(reasons: list[Reason]) -> None:
    for reason in reasons:
        console().print(EscapedText(f"  • {reason.said}"))
