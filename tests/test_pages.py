"""The code blocks of the README and the documentation, executed in order as a reader would; what is not executed is counted."""

from pathlib import Path

import pytest

from support.reader import BlockFailed, Reader, blocks_of, skipped
from support.roots import DOCS, EXAMPLES, ROOT

PAGES = sorted(
    str(path.relative_to(ROOT)) for path in (*DOCS.rglob("*.md"), *ROOT.glob("*.md"), EXAMPLES / "README.md")
)
SKIPPED: dict[str, dict[str, int]] = {
    "ARCHITECTURE.md": {"no-run": 1, "text": 1},  # an interface without bodies; a drawing of the layers
    "HACKING.md": {"no-run": 1},  # the commands of a checkout: hours, and this test itself
    "README.md": {"no-run": 1},  # ./run demo and ./run test, which contain this test
    "docs/audit.md": {"no-run": 1},  # takes a Spark cluster and HDFS
    "docs/configuration.md": {"toml": 1},  # loaded by tests/test_configuration_docs.py
    "docs/how-to/embed.md": {
        "no-run": 4
    },  # FastAPI is not here, tests/services has Starlette; tests/integrations has the backends
    "docs/how-to/console.md": {
        "no-run": 1
    },  # a member that runs until it is stopped; the same without changes is executed
    "docs/how-to/deploy.md": {"no-run": 1},  # ten minutes of faults; the same for ten seconds is executed
    "docs/how-to/kubernetes.md": {"no-run": 1},  # takes Docker and Kubernetes
    "docs/how-to/limit-memory.md": {"no-run": 2},  # members that run until they are stopped, on machines of their own
    "docs/how-to/restart.md": {"toml": 1, "text": 2, "no-run": 3},  # an operator's words, for clusters that wait
    "docs/how-to/secure.md": {"no-run": 1},  # takes two machines; the same on one is executed
    "docs/how-to/upgrade.md": {"text": 1},  # what a member of an older release is told: tests/runtime/test_upgrade.py
    "docs/index.md": {"no-run": 1},  # installs the package: tests/packaging does so
    "docs/large-clusters.md": {"no-run": 1},  # six minutes and 1 GB, in a checkout
    "docs/membership.md": {"mermaid": 4},
    "docs/migrations.md": {"mermaid": 4},
    "docs/redis.md": {"no-run": 3},  # members that run until they are stopped; tests/endpoints does the same
    "docs/scenarios.md": {"no-run": 1, "text": 1},  # runs tests of a checkout; drawings, which tests/scenarios plays
    "docs/simulation.md": {"no-run": 2},  # hours of histories, and a Spark cluster; smaller ones are executed
    "docs/staged_writes.md": {"mermaid": 1},
    "docs/tutorials/off-and-on-again.md": {"text": 1},  # lines of a log, shortened
    "docs/tutorials/same-map-three-languages.md": {
        "no-run": 2
    },  # takes Node.js and redis-cli; tests/endpoints has both
    "examples/README.md": {"no-run": 1},  # programs of a checkout: tests/examples runs them
}
"""Blocks of each page that are not executed: those marked no-run, with the reason, and by language those that are no code."""

LONG = {
    "README.md",
    "docs/audit.md",
    "docs/how-to/deploy.md",
    "docs/how-to/restart.md",
    "docs/how-to/tune-timeouts.md",
    "docs/how-to/upgrade.md",
    "docs/simulation.md",
    "docs/spark-sql.md",
    "docs/spark.md",
    "docs/tutorials/dataframe-to-service.md",
    "docs/tutorials/three-members.md",
}
"""Pages that take more than ten seconds or so: Spark, or many commands."""


def executed_pages() -> list[object]:
    found = [page for page in PAGES if any(block.is_executed for block in blocks_of(ROOT / page, page))]
    return [pytest.param(page, marks=pytest.mark.long if page in LONG else ()) for page in found]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", executed_pages())
def test_the_blocks_of_a_page_do_what_it_says(page: str, tmp_path: Path) -> None:
    with Reader(tmp_path) as reader:
        for block in blocks_of(ROOT / page, page):
            if block.is_executed:
                reader.read(block)


def test_no_block_is_left_out_in_silence() -> None:
    found = {page: skipped(blocks_of(ROOT / page, page)) for page in PAGES}
    assert {page: counts for page, counts in found.items() if counts} == SKIPPED


def run_page(tmp_path: Path, text: str) -> None:
    path = tmp_path / "page.md"
    path.write_text(text)
    with Reader(tmp_path) as reader:
        for block in blocks_of(path, "page.md"):
            reader.read(block)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```sh\ntrue\nfalse\n```\n", r"page\.md:2: status 1"),
        ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
        ("```python\nprint(1)\n```\n\n```output\n2\n```\n", "but this was printed"),
        ("```sh\nphalanx member --port 5701 --no-such-option\n```\n", "did not begin"),
        ("```sh hidden\ntrue\n```\n", "the mark 'hidden' means nothing"),
        ('```text title="../outside"\na\n```\n', "means nothing"),
        ("* a\n  ```sh\n  true\n  ```\n", "indented or not closed"),
    ],
)
def test_a_block_that_does_something_else_is_told(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(BlockFailed, match=complaint):
        run_page(tmp_path, text)


def test_blocks_of_a_page_share_names_a_shell_and_ports(tmp_path: Path) -> None:
    run_page(
        tmp_path,
        "```sh\nPORT=5702\ncd /\n```\n```python\nport = 5702\n```\n"
        "```sh\ncd - >/dev/null\necho $PORT > port\n```\n```python\nprint(int(open('port').read()) == port != 570 * 10 + 2)\n```\n"
        "```output\nTrue\n```\n",
    )


def test_a_block_with_a_title_is_the_file_of_that_name(tmp_path: Path) -> None:
    run_page(tmp_path, '```text title="a.txt"\none\n```\n```sh\ncat a.txt\n```\n```output\none\n```\n')
