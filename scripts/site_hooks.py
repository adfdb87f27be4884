"""MkDocs hooks: pages that are not files of docs/, and Markdown that the site shows otherwise than a repository does.

* Files outside docs/ (`page_list.OUTSIDE`) and the generated reference (`site_reference.PAGES`) become pages.
* A Mermaid diagram becomes a table: the library that draws it would be loaded from the internet.
* The word `no-run` of a code block is for the test that executes blocks; a reader does not see it.
* The home page shows the list of all pages (`page_list`).
"""

import posixpath
import re
from pathlib import Path, PurePosixPath

import page_list
import site_reference
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NO_RUN = re.compile(r"^(```\w+) no-run$", re.MULTILINE)
TRANSITION = re.compile(r"(\S+) --> (\S+): (.*)")
MESSAGE = re.compile(r"(\w+)->>(\w+): (.*)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand outside docs/ and those that are generated from the code."""
    for source, page in page_list.OUTSIDE.items():
        if files.get_file_from_path(page) is None:
            text = linked_from(source, page, (ROOT / source).read_text(encoding="utf-8"))
            files.append(File.generated(config, page, content=text))
    for page, make in site_reference.PAGES.items():
        files.append(File.generated(config, page, content=make()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """What the site shows of a page's Markdown."""
    source = f"docs/{page.file.src_uri}"
    if page.file.generated_by is None:
        markdown = linked_from(source, page.file.src_uri, markdown)
    if page.is_homepage:
        table = page_list.page_table(config.nav or [], str)
        markdown = markdown.replace(page_list.PLACE, f"## All pages\n\n{table}")
    return MERMAID.sub(lambda found: table_of(found[1]), NO_RUN.sub(r"\1", markdown))


def linked_from(source: str, page: str, markdown: str) -> str:
    """The Markdown of a file of the repository with its links as they are between pages of the site.

    A link to a file that is no page stays as it is, and the strict build refuses it.
    """

    def moved(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), found[2]))
        there = page_list.OUTSIDE.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
        if there is None:
            return found[0]
        return f"{found[1]}{posixpath.relpath(there, PurePosixPath(page).parent)}{found[3]}"

    return LINK.sub(moved, markdown)


def table_of(diagram: str) -> str:
    """A state diagram as a table of transitions, a sequence diagram as a table of messages and notes, in order."""
    kind, *lines = [line.strip() for line in diagram.strip().splitlines()]
    if kind == "stateDiagram-v2":
        return _transitions(lines)
    if kind == "sequenceDiagram":
        return _messages(lines)
    raise ValueError(f"a Mermaid diagram of the kind {kind!r}: scripts/site_hooks.py makes no table of it yet")


def _transitions(lines: list[str]) -> str:
    states = dict(line.split(": ", 1) for line in lines if "-->" not in line)
    rows = [found for line in lines if (found := TRANSITION.fullmatch(line))]
    begin = next(states[line.removeprefix("[*] --> ")] for line in lines if line.startswith("[*] --> "))
    table = ["| from | when | to |", "|---|---|---|"]
    table += [f"| {states[row[1]]} | {row[3]} | {states[row[2]]} |" for row in rows]
    return "\n".join([f"The first state is *{begin}*.", "", *table])


def _messages(lines: list[str]) -> str:
    participants = [found for line in lines if (found := re.fullmatch(r"participant (\w+) as (.*)", line))]
    names = {found[1]: found[2] for found in participants}
    table = ["| from | to | message, or what happens there |", "|---|---|---|"]
    for line in lines:
        if found := MESSAGE.fullmatch(line):
            table.append(f"| {names[found[1]]} | {names[found[2]]} | {found[3]} |")
        elif found := re.fullmatch(r"Note over (\w+): (.*)", line):
            table.append(f"| {names[found[1]]} | | *{found[2]}* |")
    return "\n".join(table)
