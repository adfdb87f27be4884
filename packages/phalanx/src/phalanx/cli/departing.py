"""Members that an operator lets go: for good (`phalanx members --leave`, `--forget`), or all at once (`phalanx stop --all`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from phalanx.cli.options import At, ClusterName, SecretFile
from phalanx.cli.output import EscapedText, console
from phalanx.cli.until_done import ASK_AGAIN_AFTER_S, WITHIN_S, ask_until_done, find_member
from phalanx.client.ask import Inquirer, ask_any, ask_each, find_master
from phalanx.common.errors import UnavailableError, UsageError
from phalanx.common.ids import MemberId, address_of, parse_address
from phalanx.common.seeds import DEFAULT_MEMBERS
from phalanx.common.words import counted
from phalanx.wire.messages import MembersReply


def stop(
    at: At = DEFAULT_MEMBERS,
    cluster: ClusterName = "phalanx",
    secret_file: SecretFile = None,
    every: Annotated[bool, typer.Option("--all", help="Stop all members. It must be given.")] = False,
) -> None:
    """Stop all members at the same moment, each with its data in its folder, so that any majority of them can go on.

    Ends when no process runs any more. To stop one member, send it SIGTERM.
    """
    if not every:
        raise UsageError("give --all, which stops the whole cluster; to stop one member, send SIGTERM to its process")
    members = ask_any(at, cluster, Inquirer.members).view.members
    ask_until_done(lambda: find_master(at, cluster), cluster, Inquirer.stop_cluster, "no member stops")
    running: Sequence[MemberId] = members

    def have_stopped() -> bool:
        nonlocal running
        answers = ask_each(running, cluster, Inquirer.member)
        running = [member for member in running if answers[member] == member]
        return not running

    if not _within_time(have_stopped):
        raise UnavailableError(f"after {WITHIN_S:.0f} s still running: {', '.join(map(address_of, running))}")
    console().print(
        f"{counted(len(members), 'member has', 'members have')} stopped. Start them again with their folders."
    )


def leave(at: str, cluster: str, of: str) -> None:
    """Let the member at an address hand over all that it holds and leave, and wait for that.

    Raises `UsageError` where no member of the cluster is there, or no other one can take its data, and
    `UnavailableError` where it takes too long.
    """
    leaver, staying = find_member(at, cluster, of)
    ask_any(address_of(leaver), cluster, Inquirer.leave)
    others = [*map(address_of, staying)]

    def has_left() -> bool:
        return not others or leaver not in ask_any(others, cluster, Inquirer.members).view.members

    if not _within_time(has_left):
        raise UnavailableError(
            f"not yet after {WITHIN_S:.0f} s: {of} hands over what it holds, and leaves then; phalanx partitions --until-whole waits for it"
        )


def forget(at: str, cluster: str, of: str) -> None:
    """Let the cluster await no member any more that was at an address. Raises `UsageError` if none is awaited."""
    address = parse_address(of)
    ask_until_done(
        lambda: find_master(at, cluster),
        cluster,
        lambda inquirer: inquirer.forget(address),
        "it is perhaps done: look with phalanx members",
    )


def show_away(reply: MembersReply) -> None:
    """Tell which members are awaited."""
    for each in reply.away:
        how = "has stopped" if each.returns else "is gone"
        said = f"! {address_of(each.member)} {how}, and is awaited: its folder has what it held. Start it with that."
        console().print(EscapedText(said, style="yellow"))


def _within_time(is_done: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WITHIN_S
    while not is_done():
        if time.monotonic() >= deadline:
            return False
        time.sleep(ASK_AGAIN_AFTER_S)
    return True
