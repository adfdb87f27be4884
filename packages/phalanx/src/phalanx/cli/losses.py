"""What the cluster has lost, in words, until an operator acknowledges it: `phalanx partitions --acknowledge-loss`."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Collection

from rich.text import Text

from phalanx.cli.output import console
from phalanx.cli.until_done import ask_until_done
from phalanx.client.ask import Inquirer, ask_any, find_master
from phalanx.common.errors import UsageError
from phalanx.common.ids import MemberId, address_of
from phalanx.common.losses import EARLIER, LossBook
from phalanx.common.words import counted
from phalanx.reports.losses import away_in_words, in_words, select
from phalanx.wire.messages import LossesReply

ALL = "all"


def acknowledge(at: str, cluster: str, what: str) -> None:
    """Have the cluster tell a loss no more, or a member that is away; `all`: those that are told now.

    Raises `UsageError` for what is not known.
    """
    book = ask_any(at, cluster, Inquirer.losses).losses
    ids = _every_id(book) if what == ALL else [_find(book, what)]
    if not ids:
        return
    ask_until_done(
        lambda: find_master(at, cluster),
        cluster,
        lambda inquirer: inquirer.acknowledge_losses(ids, _operator()),
        "it can be reported again until then: repeat the command",
    )


def give_up_holders(at: str, cluster: str, holders: list[str], begin_empty: int) -> None:
    """Have dormant partitions go on without holders at these addresses. Raises `UsageError` unless it is clear what is lost."""
    ask_until_done(
        lambda: find_master(at, cluster),
        cluster,
        lambda inquirer: inquirer.give_up(holders, begin_empty, _operator()),
        "it is perhaps done: look with phalanx partitions",
    )


def _every_id(book: LossBook) -> list[str]:
    """Return the ids of all losses that were shown. Losses recorded since then stay unacknowledged."""
    earlier = [EARLIER] if book.earlier else []
    return [*(loss.id for loss in book.losses), *earlier, *(each.member for each in book.away)]


def _find(book: LossBook, what: str) -> str:
    """Return the identity of the absent member at an address. Any other text is returned as it is: the master checks it."""
    away = [each.member for each in book.away if what in (each.member, address_of(each.member))]
    if not away and ":" in what:
        absent = ", ".join(address_of(each.member) for each in book.away) or "nobody"
        raise UsageError(f"{what} is not reported as absent; these are: {absent}")
    return away[-1] if away else what


def _operator() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # no such user: in a container, say
        return f"somebody@{socket.gethostname()}"


# --- in words -------------------------------------------------------------------------------------------------------


def show_losses(reply: LossesReply, at: str, *, only: Collection[str] | None = None) -> None:
    """Tell what is lost and not acknowledged, and how to acknowledge it. `only`: identities of losses and members."""
    out, book = console(), select(reply.losses, only)
    for loss in book.losses:
        out.print(Text(f"✗ {in_words(loss, reply.now_ms)}", style="red"))
    if book.earlier:
        partitions = counted(book.earlier_partitions, "partition")
        out.print(
            Text(f"✗ And {counted(book.earlier, 'earlier loss', 'earlier losses')}, of {partitions}.", style="red")
        )
    for each in book.away:
        out.print(Text(f"! {away_in_words(each, reply.now_ms)}", style="yellow"))
    if book:
        ids = _every_id(book)
        what = address_of(MemberId(ids[0])) if "/" in ids[0] else ids[0]
        said = f"phalanx partitions --at {at} --acknowledge-loss {what if len(ids) == 1 else ALL}"
        out.print(Text(f"→ to acknowledge it: {said}"), soft_wrap=True)
