"""Read the rules of the protocol from their pages, docs/protocol/*.md: the only list of them.

A rule is a list item: an anchor, the id and a title in bold, the text, and after *In* the modules that implement it.

    * <a id="cs-14"></a>**CS-14: a member installs a list of its master if and only if it is newer.** Newer means …
      *In* `membership/view_acceptance.py`.
"""

import re
from pathlib import Path
from typing import NamedTuple

from .roots import DOCS

PAGES = DOCS / "protocol"
ID = r"(?:(?:CS|PD|PN|EL|DL|PX|DU|C|D)-\d+|A\.6-\d+)"
CITED = re.compile(rf"(?<![\w.-]){ID}(?![\w-])")
"""An id, wherever it is cited."""
_ITEM = re.compile(
    rf'\* <a id="(?P<anchor>[^"]*)"></a>\*\*(?P<id>{ID}): (?P<title>.+?)\.\*\*(?: (?P<text>.*?))? \*In\* (?P<code>.+)\.'
)
_MODULE = re.compile(r"`([\w/]+\.py)`")


class Rule(NamedTuple):
    """One rule as its page states it."""

    id: str
    title: str
    text: str
    page: str
    modules: tuple[str, ...]
    """Paths below the source folder of a package."""


def read_page(path: Path) -> list[Rule]:
    """All rules of a page, in its order; raises ValueError for an item that begins like a rule and is none."""
    rules = []
    for item in re.split(r"\n(?=\* |#|\n)", path.read_text(encoding="utf-8")):
        if not item.lstrip().startswith("* <a id="):
            continue
        joined = " ".join(item.split())
        found = _ITEM.fullmatch(joined)
        if found is None:
            raise ValueError(f"{path.name}: not an anchor, an id, a title, a text and modules: {joined[:100]}")
        if found["anchor"] != found["id"].lower():
            raise ValueError(f"{path.name}: the anchor of {found['id']} is {found['anchor']!r}")
        modules = tuple(_MODULE.findall(found["code"]))
        rules.append(Rule(found["id"], found["title"], found["text"] or "", path.name, modules))
    return rules


def read_rules(pages: Path = PAGES) -> dict[str, Rule]:
    """All rules by id, page by page; raises ValueError if two have one id."""
    rules: dict[str, Rule] = {}
    for path in sorted(pages.glob("*.md")):
        for rule in read_page(path):
            if rule.id in rules:
                raise ValueError(f"{rule.id} stands in {rules[rule.id].page} and in {rule.page}: an id has one place")
            rules[rule.id] = rule
    return rules
