"""Conditions as text, `price > 10 and city in ('Oslo', 'Rome')`, and what members are sent of them.

    condition   = "true" | comparison { "and" comparison }
    comparison  = name ( "=" | "!=" | "<>" | "<" | "<=" | ">" | ">=" ) literal
                | name [ "not" ] "in" "(" literal { "," literal } ")"
                | name "is" [ "not" ] "null"
                | name "starts" "with" text
    name        = word { "." word }       a field of a value that is a dict, or a field within it; "in quotes" any text
                | "value"                 a value that is not a dict
                | "key"                   the key, if it is not a tuple
    literal     = number | 'text' | true | false

Words of the language are written in any case. A comparison does not hold where the field is missing, None or of another
type; nor does its negation (`!=`, `not in`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from phalanx.codec.values import to_data
from phalanx.common.errors import UsageError
from phalanx.common.words import check_text, quoted
from phalanx.grid.serving.conditions import BadCondition, wanted_by
from phalanx.wire.conditions import Condition, Kind, Relation
from phalanx.wire.limits import MAX_PATH

EVERY: Final = "true"
"""The condition that every entry fulfils."""
MOST_CHARACTERS: Final = 4_096
"""Of a condition as text. Any program may have typed it into a console, and a member reads it in a turn."""
# Nothing that was matched is given back (`++`, `*+`, `?+`): a long run of digits before a letter would take time by its square.
_TOKEN: Final = re.compile(
    r"""\s*+(?:(?P<number>[-+]?+(?:\d++\.?+\d*+|\.\d++)(?:[eE][-+]?+\d++)?+)(?![\w.])|'(?P<text>(?:[^']|'')*+)'"""
    r"""|"(?P<name>(?:[^"]|"")++)"|(?P<word>[^\W\d]\w*+)|(?P<sign><=|>=|!=|<>|==|[=<>(),.]))"""
)
_RELATIONS: Final = {
    "=": (Relation.EQUAL, False),
    "==": (Relation.EQUAL, False),
    "!=": (Relation.EQUAL, True),
    "<>": (Relation.EQUAL, True),
    "<": (Relation.LESS, False),
    "<=": (Relation.AT_MOST, False),
    ">": (Relation.GREATER, False),
    ">=": (Relation.AT_LEAST, False),
}
_MOST_DIGITS: Final = 150
"""A longer literal is beyond every number that conditions compare with."""


def conditions_of(condition: str | Condition | Iterable[Condition]) -> tuple[Condition, ...]:
    """Return what members are sent of a condition: a text, or conditions that must all hold.

    Raises `UsageError` for what no members could evaluate.
    """
    if isinstance(condition, str):
        found = _Parser(check_text(condition, "condition")).conditions()
    elif isinstance(condition, Condition):
        found = (condition,)
    else:
        found = tuple(condition) if isinstance(condition, Iterable) else ()
        if not isinstance(condition, Iterable) or not all(isinstance(each, Condition) for each in found):
            raise UsageError(f"condition: {quoted(condition)} is neither a text such as 'price > 10' nor conditions")
    if any(len(each.path) > MAX_PATH for each in found):
        raise UsageError(f"condition: a field is more than {MAX_PATH} names deep")
    try:
        wanted_by(found, 1, surely=True)
    except BadCondition as error:
        raise UsageError(f"condition: {error}") from None
    return found


class _Parser:
    """Reads one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []
        """For each token its kind, its text and where it begins."""
        self._at = 0
        if len(text) > MOST_CHARACTERS:
            raise UsageError(
                f"condition: {quoted(text)}: at most {MOST_CHARACTERS:,} characters are read: make several calls, each with some of the values"
            )
        place, ends = 0, len(text.rstrip())
        while place < ends:
            token = _TOKEN.match(text, place)
            if token is None:
                self._refuse(len(text) - len(text[place:].lstrip()), "this is not expected here")
            kind = str(token.lastgroup)
            self._tokens.append((kind, token[kind], token.start(kind) - (kind in ("text", "name"))))
            place = token.end()

    def conditions(self) -> tuple[Condition, ...]:
        if len(self._tokens) == 1 and self._takes(EVERY):
            return ()
        found = [self._comparison()]
        while self._takes("and"):
            found.append(self._comparison())
        if self._at < len(self._tokens):
            self._fail("'and', or the end")
        return tuple(found)

    def _comparison(self) -> Condition:
        part, path = self._name()
        negated = self._takes("not")
        if negated or self._is_next("in"):
            self._needs("in")
            return self._in(part, path, negated=negated)
        if self._takes("is"):
            negated = self._takes("not")
            self._needs("null")
            return Condition(part, path, Kind.ANY, Relation.NULL, (), negated)
        if self._takes("starts"):
            self._needs("with")
            literal = self._literal()
            if not isinstance(literal, str):
                self._at -= 1
                self._fail("a text in quotes")
            return Condition(part, path, Kind.TEXT, Relation.STARTS, (to_data(literal),))
        kind, sign, _ = self._token()
        if kind != "sign" or sign not in _RELATIONS:
            self._at -= kind != "end"
            self._fail("a comparison: =, !=, <, <=, >, >=, in, not in, is null, is not null, or starts with")
        relation, negated = _RELATIONS[sign]
        literal = self._literal()
        return Condition(part, path, _kind_of(literal), relation, (to_data(literal),), negated)

    def _in(self, part: int, path: tuple[str, ...], *, negated: bool) -> Condition:
        self._needs("(")
        literals = [self._literal()]
        while self._takes(","):
            literals.append(self._literal())
        self._needs(")")
        kinds = {_kind_of(literal) for literal in literals}
        if len(kinds) > 1:
            self._at -= 1
            self._fail("literals of one type: numbers, texts, or true and false")
        return Condition(part, path, kinds.pop(), Relation.IN, tuple(map(to_data, literals)), negated)

    def _name(self) -> tuple[int, tuple[str, ...]]:
        """Return the part of the key that is named, and the path of the field."""
        kind, text, _ = self._token()
        if kind == "word" and text == "key" and not self._is_next("."):
            return 0, ()
        path: list[str] = []
        while True:
            if kind not in ("word", "name"):
                self._at -= kind != "end"
                self._fail("the name of a field, or key, or value")
            path.append(text.replace('""', '"') if kind == "name" else text)
            if not self._takes("."):
                return -1, tuple(path)
            kind, text, _ = self._token()

    def _literal(self) -> Any:
        kind, text, _ = self._token()
        if kind == "text":
            return text.replace("''", "'")
        if kind == "number":
            if not text.lstrip("+-").isdecimal():
                return float(text)
            if len(text) <= _MOST_DIGITS:
                return int(text)
        elif kind == "word" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        self._at -= kind != "end"
        self._fail("a number, a 'text', true or false")

    # --- tokens ----------------------------------------------------------------------------------------------------

    def _token(self) -> tuple[str, str, int]:
        if self._at == len(self._tokens):
            return "end", "", len(self._text)
        self._at += 1
        return self._tokens[self._at - 1]

    def _is_next(self, wanted: str) -> bool:
        """Return whether the next token is this word of the language, or this sign."""
        if self._at == len(self._tokens):
            return False
        kind, text, _ = self._tokens[self._at]
        return kind in ("word", "sign") and text.lower() == wanted

    def _takes(self, wanted: str) -> bool:
        is_next = self._is_next(wanted)
        self._at += is_next
        return is_next

    def _needs(self, wanted: str) -> None:
        if not self._takes(wanted):
            self._fail(f"{wanted!r}")

    def _fail(self, wanted: str) -> NoReturn:
        place = self._tokens[self._at][2] if self._at < len(self._tokens) else len(self._text)
        self._refuse(place, f"expected {wanted}")

    def _refuse(self, place: int, why: str) -> NoReturn:
        shown = quoted(self._text)
        raise UsageError(
            f"condition: {shown}: at character {place + 1}, {quoted(self._text[place : place + 20])}: {why}"
        )


def _kind_of(literal: object) -> Kind:
    if isinstance(literal, bool):
        return Kind.BOOLEAN
    return Kind.TEXT if isinstance(literal, str) else Kind.NUMBER
