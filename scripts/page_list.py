"""The list of all pages, made from the navigation in mkdocs.yml.

The home page of the site shows it when it is built; in the README, whose links are paths of the repository, `./run docs` writes it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mkdocs.utils.yaml import yaml_load

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {
    "ARCHITECTURE.md": "explanation/architecture.md",
    "CONTRIBUTING.md": "how-to/contributing.md",
    "HACKING.md": "how-to/hacking.md",
    "SECURITY.md": "explanation/security.md",
    "README.md": "index.md",  # not shown: the home page of the site stands in its place
    "examples/README.md": "how-to/examples.md",
}
"""Path in the repository, and path of the page in the site."""
PLACE = "<!-- All pages: the site has their list here. -->"
"""Where a page of the site has the list."""


def read_nav() -> list[dict[str, Any]]:
    """Return the navigation: sections, each with the titles of its pages."""
    with (ROOT / "mkdocs.yml").open(encoding="utf-8") as file:
        found = yaml_load(file)
    return list(found["nav"])


def page_table(nav: Sequence[dict[str, Any]], link: Callable[[str], str | None]) -> str:
    """Return a table in Markdown with a row for each section; a section within one is shown by its first page.

    `link`: from the path of a page in the site to what the table links to; None leaves the page out.
    """
    rows = ["| | |", "|---|---|"]
    for section in nav:
        for title, pages in section.items():
            if not isinstance(pages, list):
                continue  # the home page itself
            named = [
                (name, page[0] if isinstance(page, list) else page) for each in pages for name, page in each.items()
            ]
            rows.append(f"| {title} | {', '.join(f'[{name}]({to})' for name, page in named if (to := link(page)))} |")
    return "\n".join(rows)


def in_repository(page: str) -> str | None:
    """Return the path below the root of a page's file; None for a page that is generated from the code."""
    outside = {there: path for path, there in OUTSIDE.items()}
    path = outside.get(page, f"docs/{page}")
    return path if (ROOT / path).exists() else None
