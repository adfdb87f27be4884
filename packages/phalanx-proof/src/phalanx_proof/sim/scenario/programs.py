"""The programs that embed the members of a scenario: what they have asked for, and what they were answered."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from phalanx.common.errors import ErrorCode
from phalanx.wire.messages import ErrorReply, Reply
from phalanx_proof.sim.scenario.errors import wrong


class ScenarioCall(msgspec.Struct):
    """One call of a program."""

    number: int
    who: str
    """Who asked for what: `A put`."""
    key: str
    behind: str
    """What the scenario writes behind the key, such as `=1`."""
    words: Callable[[Reply], str]
    """The answer in words; empty: it is the expected one."""
    reply: Reply | None = None
    is_shown: bool = False
    """Whether the scenario has shown the answer."""

    @property
    def text(self) -> str:
        """Return what was asked, as the scenario writes it."""
        return f"{self.who} {self.key}{self.behind}"

    @property
    def answer(self) -> str:
        """Return the answer in words. There must be one."""
        if isinstance(self.reply, ErrorReply):
            code, text = self.reply.code, self.reply.text
            return f"refused: {text if code is ErrorCode.INVALID else code.name.lower().replace('_', ' ')}"
        return self.words(self.reply) if self.reply is not None else "no answer yet"


class Programs:
    """All calls of one scenario, in order, and the fencing tokens that were seen."""

    def __init__(self) -> None:
        self._calls: dict[int, ScenarioCall] = {}
        self._tokens: list[int] = []
        """In the order in which they were seen: t1, t2, …"""

    def note(self, who: str, key: str, behind: str, words: Callable[[Reply], str]) -> ScenarioCall:
        """Return a new call, whose number its request has to have."""
        call = ScenarioCall(len(self._calls) + 1, who, key, behind, words)
        self._calls[call.number] = call
        return call

    def on_answer(self, reply: Reply) -> None:
        self._calls[reply.id].reply = reply

    def open(self) -> list[ScenarioCall]:
        """Return the calls that nobody has answered yet."""
        return [call for call in self._calls.values() if call.reply is None]

    def not_shown(self) -> list[ScenarioCall]:
        """Return the calls whose answers the scenario has not shown, and take them for shown."""
        found = [call for call in self._calls.values() if call.reply is not None and not call.is_shown]
        for call in found:
            call.is_shown = True
        return found

    # --- tokens ----------------------------------------------------------------------------------------------------

    def name_of(self, token: int) -> str:
        """Return the name of a token. One that is seen for the first time gets the next name, and is told if it has not grown."""
        if token not in self._tokens:
            self._tokens.append(token)
            less = max(self._tokens) > token
            return f"t{len(self._tokens)}" + (f", less than {self.name_of(max(self._tokens))}" if less else "")
        return f"t{self._tokens.index(token) + 1}"

    def token(self, name: str) -> int:
        """Return the token of a name. Raises `ScenarioError`."""
        number = name.removeprefix("t")
        if not number.isdecimal() or not 0 < int(number) <= len(self._tokens):
            raise wrong(f"one of the {len(self._tokens)} tokens that were shown, such as t1", name)
        return self._tokens[int(number) - 1]
