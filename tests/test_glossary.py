"""The glossary names files that are there."""

import re

from support.roots import DOCS, find_module


def test_each_word_is_said_to_stand_in_a_file_that_is_there() -> None:
    rows = [line for line in (DOCS / "glossary.md").read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    named = [match[1] for row in rows if (match := re.search(r"`([\w/]+\.py)` \|$", row))]
    assert len(named) > 40
    assert [path for path in named if find_module(path) is None] == []


def test_the_words_of_the_glossary_stand_in_it_once() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    words = [word.strip() for row in re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE) for word in row.split(",")]
    words = [word for word in words if word != "word"]
    assert sorted(set(words)) == sorted(words)
