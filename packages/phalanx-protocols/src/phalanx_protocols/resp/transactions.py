"""MULTI and EXEC: commands of one owner, one after the other.

Nothing in the grid holds several keys together. So a transaction runs its commands in their order, with no other command of its
connection between them; commands of others can come between, and if the owner dies in the middle, some can be done. Where
that is not enough, one key must do: a hash, SET with NX, or a function of the members.
"""

from __future__ import annotations

from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_data
from phalanx.endpoints.protocol import TURN_S
from phalanx.maps.answer_budget import AnswerBudget, AnswerTooLarge
from phalanx.maps.call_plans import CallOwners, CallPlan
from phalanx_protocols.resp.answer_list import NEXT_TURN
from phalanx_protocols.resp.answers import KeyCall, Outcome, error_of, evaluated
from phalanx_protocols.resp.command_queue import CommandQueue
from phalanx_protocols.resp.connection import RespConnection
from phalanx_protocols.resp.framing import OK, array, error
from phalanx_protocols.resp.table import SEVERAL, Command, Commands
from phalanx_protocols.windows import Window

SHORT_COMMANDS = 16
"""Short commands that are carried out before anybody looks at the clock."""
SHORT_BYTES = 64
"""Answers that are no longer count for nothing: their number is bounded, and so is what takes their place."""


def multi(c: RespConnection, args: list[bytes]) -> Outcome:
    if c.queue is not None:
        return error("ERR MULTI calls can not be nested")
    c.queue = CommandQueue()
    return OK


def discard(c: RespConnection, args: list[bytes]) -> Outcome:
    if c.queue is None:
        return error("ERR DISCARD without MULTI")
    c.queue = None
    return OK


def exec_(c: RespConnection, args: list[bytes]) -> Outcome:
    if c.queue is None:
        return error("ERR EXEC without MULTI")
    queue, c.queue = c.queue, None
    if queue.is_broken:
        return error("EXECABORT Transaction discarded because of previous errors.")
    commands = [(c.server.find(args[0]), args) for args in queue.commands]
    if not c.server.is_loose and (owners := _owners(c, commands)) > 1:
        return error(
            f"CROSSSLOT the keys of this transaction have {owners} owners, and nothing holds them together: use keys of one owner, no "
            f"MULTI, or a member with redis_loose_transactions"
        )
    return _run(c, commands)


def _owners(c: RespConnection, commands: list[tuple[Command, list[bytes]]]) -> int:
    """Return how many members own the keys of these commands, by the installed table."""
    table = c.grid.table
    keys = {key for command, args in commands for key in command.keys_in(args)}
    if table is None:
        return 1 if len(keys) <= 1 else 2
    partition_count = table.partition_count
    partitions = {partition_of(to_data(key), partition_count) for key in keys}
    return len({table.owner(partition) for partition in partitions})


def _run(c: RespConnection, commands: list[tuple[Command, list[bytes]]]) -> CallPlan[bytes]:
    """Plan to carry out commands one after the other; those of different keys together."""
    answers: list[bytes] = []
    names = [command.name for command, _ in commands]
    together: list[tuple[int, KeyCall]] = []
    """Places of answers that are to come, and what is asked for them."""
    window, budget = Window(), AnswerBudget(c.grid.max_answer_bytes)

    def within_budget(answer: bytes) -> bytes:
        """Return an answer, or an error in its place: all commands are carried out, also where not all answers fit."""
        if len(answer) > SHORT_BYTES:
            try:
                budget.take(len(answer))
            except AnswerTooLarge as failure:
                return error_of(c.grid, "exec", failure)
        return answer

    def finish() -> CallPlan[None]:
        if together:
            replies = yield CallOwners([(call.partition(c.grid.local), call.request) for _, call in together], 0)
            for (place, call), reply in zip(together, replies, strict=True):
                answer = evaluated(c.grid, names[place], call.answer, reply)
                if not isinstance(answer, bytes):
                    answer = yield from _ended(c, names[place], answer)
                window.note(len(answer))
                answers[place] = within_budget(answer)
            together.clear()

    clock_s = c.grid.clock_s
    until_s = clock_s() + TURN_S
    for command, args in commands:
        if (not command.is_short or not len(answers) % SHORT_COMMANDS) and clock_s() >= until_s:
            yield NEXT_TURN
            until_s = clock_s() + TURN_S
        if together and (
            len(together) >= window.most
            or not command.is_of_one_key(args)
            or to_data(args[command.first_key]) in {call.key for _, call in together}
        ):
            yield from finish()
        outcome = evaluated(c.grid, command.name, command.handle, c, args)
        if isinstance(outcome, KeyCall):
            together.append((len(answers), outcome))
            answers.append(b"")
            continue
        if not isinstance(outcome, bytes):
            outcome = yield from _ended(c, command.name, outcome)
        answers.append(outcome if len(outcome) <= SHORT_BYTES else within_budget(outcome))
    yield from finish()
    return array(answers)


def _ended(c: RespConnection, what: str, plan: CallPlan[bytes]) -> CallPlan[bytes]:
    """Plan to return the answer of a command that is a plan, or the error with which it ends."""
    try:
        return (yield from plan)
    except Exception as failure:
        return error_of(c.grid, what, failure)


COMMANDS = Commands("transactions")
_add = COMMANDS.add
_add("multi", 1, "Begins a transaction.", multi, "noscript loading stale fast", is_outside_transactions=True,
     differs="See EXEC.")  # fmt: skip
_add("exec", 1, "Carries out the commands since MULTI.", exec_, "noscript loading stale", is_outside_transactions=True,
     differs="All keys must have one owner (setting `redis_loose_transactions` lifts that). Commands run in order; those of others can "
     "come between them, and if the owner dies, some can be done and others not.")  # fmt: skip
_add(
    "discard",
    1,
    "Drops the commands since MULTI.",
    discard,
    "noscript loading stale fast",
    is_outside_transactions=True,
)
_text = "WATCH is not served: nothing could hold EXEC back; change one key by SET with NX, by INCR, or as a hash"
COMMANDS.refuse("watch", _text, "noscript loading stale fast", "EXEC could not be held back for sure.", -2, **SEVERAL)
_add("unwatch", 1, "Does nothing.", lambda c, args: OK, "noscript loading stale fast",
     differs="Nothing is ever watched.")  # fmt: skip
