"""Counts in words, and text from outside in a form that can be shown."""

import unicodedata

import pytest

from phalanx.common.errors import UsageError
from phalanx.common.words import check_text, counted, quoted, shown

BIDI_CONTROLS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (counted(0, "member"), "0 members"),
        (counted(1, "member"), "1 member"),
        (counted(2_000, "member"), "2,000 members"),
        (counted(1, "entry", "entries"), "1 entry"),
        (counted(2, "entry", "entries"), "2 entries"),
        (counted(1, "line is", "lines are"), "1 line is"),
        (counted(3, "line is", "lines are"), "3 lines are"),
    ],
)
def test_one_is_one_and_all_else_are_many(said: str, expected: str) -> None:
    assert said == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain, Δ ☂ 1\xa0000 \U0001f469\u200d\U0001f4bb [red]x[/red]", None),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("\x7f\x9b31m\x85", r"\x7f\x9b31m\x85"),
        ("abc\u202ecba\u2066\u2069\u200f", r"abc\u202ecba\u2066\u2069\u200f"),
        ("one\u2028two\u2029", r"one\u2028two\u2029"),
        ("\ud800 \udcff", r"\ud800 \udcff"),
        ("\ufeff\u200b\xad\U000e0041", r"\ufeff\u200b\xad\U000e0041"),
    ],
)
def test_what_would_act_instead_of_being_shown_is_an_escape(text: str, expected: str | None) -> None:
    assert shown(text) == (text if expected is None else expected)
    shown(text).encode()


def test_every_character_that_acts_is_an_escape_and_no_letter_is() -> None:
    acting = {chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cc", "Cs", "Zl", "Zp")}
    directions = {c for c in map(chr, range(0x110000)) if unicodedata.bidirectional(c) in BIDI_CONTROLS}
    for character in acting | directions:
        assert shown(character).isascii(), hex(ord(character))
        assert shown(character).isprintable(), hex(ord(character))
    for character in map(chr, range(0x110000)):
        if unicodedata.category(character)[0] in "LMNPS":
            assert shown(character) == character, hex(ord(character))


def test_what_is_too_long_is_cut_and_says_how_long_it_was() -> None:
    assert shown("x" * 1_000, 10) == "xxxxxxxxxx… (1,000 characters)"
    assert shown("\n" * 1_000, 2) == r"\n\n… (1,000 characters)"
    assert len(quoted(b"x" * 10**6)) < 300
    assert len(quoted("x" * 10**6)) < 300
    assert len(quoted([["x" * 1_000] * 1_000] * 1_000)) < 300


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\n\ud800", r"'a\n\ud800'"),
        (7, "7"),
        pytest.param(10**5000, "<int of 16,610 bits>", id="long int"),
        ({"a": [10**5000]}, "<dict>"),
        (None, "None"),
        (type("Odd", (), {"__repr__": lambda self: 1 / 0})(), "<Odd instance at "),
    ],
)
def test_any_value_can_be_quoted(value: object, expected: str) -> None:
    assert quoted(value).startswith(expected)


def test_text_that_is_no_unicode_is_told_with_its_place() -> None:
    assert check_text("é☂", "cluster") == "é☂"
    with pytest.raises(
        UsageError, match=r"cluster: 'a\\udcff' holds a lone surrogate at index 1, so it is not Unicode"
    ):
        check_text("a\udcff", "cluster")
