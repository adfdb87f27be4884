"""docs/protocol states each rule that is cited anywhere, once, with modules that exist, in the words that tools print."""

import ast
import re
from pathlib import Path

import pytest

from phalanx.reports.partition_story import KINDS
from phalanx.rules import RECORDED_AS, WORDS, ids_of
from phalanx_spark.audit.verdicts import PROPERTIES
from support.protocol_pages import CITED, PAGES, read_page, read_rules
from support.roots import DOCS, ROOT, SOURCES, TESTS, find_module, find_package

MACHINES = ("common", "wire", "membership", "partition", "grid", "node")
RULES = read_rules()
INVENTED = {"tests/test_rows.py": {"CS-99"}, "tests/test_protocol_docs.py": {"CS-99"}}
"""Ids that tests make up because there is no such rule."""


def citing_files() -> list[Path]:
    folders = {
        **dict.fromkeys(SOURCES, ("*.py", "*.js", "*.html")),
        TESTS: ("*.py", "*.toml", "*.txt"),
        DOCS: ("*.md",),
    }
    files = [path for folder, kinds in folders.items() for kind in kinds for path in folder.rglob(kind)]
    return sorted([*files, *ROOT.glob("*.md")])


def test_each_id_that_is_cited_is_a_rule() -> None:
    unknown, cited = [], set()
    for path in citing_files():
        name = path.relative_to(ROOT).as_posix()
        own = set(CITED.findall(path.read_text(encoding="utf-8")))
        cited |= own
        unknown += [f"{name} cites {rule}" for rule in sorted(own - RULES.keys() - INVENTED.get(name, set()))]
    assert unknown == []
    assert {"CS-14", "A.6-21", "C-23", "PX-01", "DL-78"} <= cited  # they are cited in quite different ways


def test_no_document_outside_the_repository_is_cited() -> None:
    pattern = re.compile(r"\breferences? \d{3}\b", re.IGNORECASE)
    assert [str(path) for path in citing_files() if pattern.search(path.read_text(encoding="utf-8"))] == []


def test_each_module_of_a_rule_exists() -> None:
    missing = [
        f"{rule.page}: {rule.id} names {path}"
        for rule in RULES.values()
        for path in rule.modules
        if find_module(path) is None
    ]
    assert missing == []
    assert [rule.id for rule in RULES.values() if not rule.modules] == []


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.name)
def test_each_link_between_pages_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.is_file(), target
        if anchor and path.parent == PAGES:
            assert anchor in {rule.id.lower() for rule in read_page(path)}, target


def test_each_page_is_in_the_index() -> None:
    index = (PAGES / "index.md").read_text(encoding="utf-8")
    assert [
        path.name for path in PAGES.glob("*.md") if path.name != "index.md" and f"]({path.name})" not in index
    ] == []


def test_each_rule_that_is_recorded_or_judged_is_told_in_the_words_of_its_page() -> None:
    named = {rule for text in recorded_texts() for rule in ids_of(text)}
    named |= {rule for each in PROPERTIES for rule in ids_of(each.rule)} | set(KINDS.values())
    assert named == WORDS.keys()  # nothing without words, no words of what nobody names
    assert {rule: words for rule, words in WORDS.items() if RULES[rule].title != words} == {}


def test_each_recorded_text_names_a_rule_of_these_pages() -> None:
    """What the first release recorded instead of an id is still read, and written no more."""
    assert [text for text in sorted(recorded_texts()) if CITED.match(text) is None] == []
    assert set(RECORDED_AS.values()) <= WORDS.keys()


def recorded_texts() -> set[str]:
    """The texts in the machines that name a rule: events carry them."""
    found: set[str] = set()
    for path in (path for folder in MACHINES for path in (find_package("phalanx") / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        read_only = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
        found |= {str(node.value) for node in texts if id(node) not in read_only and _names_a_rule(str(node.value))}
    return found


def _names_a_rule(text: str) -> bool:
    return CITED.match(text) is not None or re.match(r"DESIGN \d|M\d ", text) is not None


def test_a_page_with_a_rule_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    whole = '* <a id="cs-99"></a>**CS-99: a title.** A text.\n  *In* `common/view.py`,\n  `common/ids.py`.\n'
    page.write_text(f"# Page\n\n{whole}\nMore text.\n")
    (rule,) = read_page(page)
    assert (rule.title, rule.text, rule.modules) == ("a title", "A text.", ("common/view.py", "common/ids.py"))
    for broken in (whole.replace("cs-99", "cs-98"), whole.replace("*In*", "In"), whole.replace("**CS-99:", "**CS-99")):
        page.write_text(broken)
        with pytest.raises(ValueError, match=r"page\.md"):
            read_page(page)
