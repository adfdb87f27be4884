"""The documentation builds as a site without a warning, loads nothing from elsewhere, and says what the code says."""

import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import phalanx
from phalanx.common import errors
from support.roots import ROOT, SCRIPTS


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, str(SCRIPTS / "docs.py"), "--check", "--to", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SCRIPTS)
    spec = importlib.util.spec_from_file_location("site_hooks", SCRIPTS / "site_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    loads = re.compile(r'<(?:script|img|iframe|source)[^>]*\ssrc="(?:https?:)?//|<link[^>]*href="(?:https?:)?//')
    assert [str(page) for page in pages if loads.search(page.read_text(encoding="utf-8"))] == []
    # The theme's script draws Mermaid with a library from elsewhere: no page may have what makes it do so.
    assert [str(page) for page in pages if 'class="mermaid"' in page.read_text(encoding="utf-8")] == []


def reference_of_python(site: Path) -> dict[str, str]:
    return {path.stem: path.read_text(encoding="utf-8") for path in (site / "reference" / "python").glob("*.html")}


def test_the_reference_has_what_the_code_has(site: Path) -> None:
    pages, told = reference_of_python(site), (site / "reference" / "errors.html").read_text(encoding="utf-8")
    for name in phalanx.__all__:
        kind = getattr(phalanx, name)
        is_error = isinstance(kind, type) and issubclass(kind, errors.PhalanxError)
        found = [told] if is_error else [text for page, text in pages.items() if page != "index"]
        assert any(name in page for page in found), f"phalanx.{name} is in no page of the reference"
    commands = (site / "reference" / "command-line.html").read_text(encoding="utf-8")
    for words in ("phalanx member", "phalanx map merge-policy", "--also-known-as", "phalanx what-if"):
        assert words in commands
    assert "ViewInstalled" in (site / "reference" / "events.html").read_text(encoding="utf-8")
    assert "startingOffsets" in (site / "reference" / "spark-options.html").read_text(encoding="utf-8")


def test_the_reference_of_python_begins_with_clients_and_maps(site: Path, hooks: ModuleType) -> None:
    pages = reference_of_python(site)
    subjects = hooks.site_reference.python_reference.SUBJECTS
    assert [each.page for each in subjects][:4] == ["clients", "maps", "locks", "cached"]
    assert {*pages} == {"index", *(each.page for each in subjects)}
    assert re.findall(r'href="(\w+)\.html">(?:<code>)?([A-Z]\w+)', pages["index"].split("<h1", 1)[1])[:2] == [
        ("clients", "Clients"),
        ("maps", "Maps"),
    ]
    assert "call_timeout_s" in pages["clients"], "the constructor of a client"
    assert not [page for page, text in pages.items() if "PublicNames" in text]


def test_the_reference_of_python_has_no_internals(site: Path, hooks: ModuleType) -> None:
    pages, reference = reference_of_python(site), hooks.site_reference.python_reference
    kinds = {kind.__name__: (kind, pages[each.page]) for each in reference.SUBJECTS for kind in each.members}
    for kind, page in kinds.values():
        place = f"{kind.__module__}.{kind.__qualname__}"
        assert f'id="{place}"' in page
        for each in reference.hidden_of(kind):
            assert f'.{kind.__qualname__}.{each}"' not in page, f"{place}.{each}"
    for name, hidden in reference.INTERNAL.items():
        source = "".join(
            inspect.getsource(sys.modules[each.__module__])
            for each in kinds[name][0].__mro__
            if each.__module__.startswith(("phalanx.", "phalanx_spark."))
        )
        assert [each for each in hidden if each not in source] == [], f"{name}: INTERNAL need not name it"
    assert f'id="{kinds["Member"][0].__module__}.Member.stop"' in pages["members"]
    for internal in ("crash", "node", "feed", "measure_memory", "receivers"):
        assert f'Member.{internal}"' not in pages["members"]
        assert f'MemberDriver.{internal}"' not in pages["members"]


def test_the_home_page_and_the_readme_have_one_list_of_pages(site: Path, hooks: ModuleType) -> None:
    nav = hooks.page_list.read_nav()
    pages = [
        page for section in nav for pages in section.values() if isinstance(pages, list) for each in pages
        for page in each.values() if isinstance(page, str)
    ]  # fmt: skip
    assert len(pages) > 30
    home = (site / "index.html").read_text(encoding="utf-8").partition('id="all-pages"')[2]
    assert [page for page in pages if f'href="{page.removesuffix(".md")}.html"' not in home] == []
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    in_repository = [path for page in pages if (path := hooks.page_list.in_repository(page))]
    assert {"docs/hazelcast.md", "docs/redis.md", "docs/how-to/kubernetes.md", "HACKING.md"} <= set(in_repository)
    assert [path for path in in_repository if f"]({path})" not in readme] == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[a](nowhere.md)", "nowhere.md"),
        ("[a](#nowhere)", "#nowhere"),
        ("[a](../README.md)", "README.md"),
    ],
)
def test_a_broken_link_stops_the_build(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Planted\n\n{text}\n")
    config = tmp_path / "mkdocs.yml"
    config.write_text(f"INHERIT: {ROOT / 'mkdocs.yml'}\nhooks: []\nplugins: []\nnav: [index.md]\n")
    build = f"import sys; sys.path.insert(0, {str(SCRIPTS)!r}); import docs; sys.exit(docs.mkdocs(*sys.argv[1:]))"
    command = [sys.executable, "-c", build, "build", "--strict", "-f", str(config), "-d", str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert complaint in done.stderr
    assert "in strict mode" in done.stderr


def test_diagrams_become_tables(hooks: ModuleType) -> None:
    states = "stateDiagram-v2\n    A: at rest\n    B: busy\n    [*] --> A\n    A --> B: work comes\n"
    assert hooks.table_of(states).splitlines()[0] == "The first state is *at rest*."
    assert hooks.table_of(states).splitlines()[-1] == "| at rest | work comes | busy |"
    messages = "sequenceDiagram\n    participant M as master\n    participant O as owner\n    M->>O: Order\n    Note over O: waits\n"
    assert hooks.table_of(messages).splitlines()[2:] == ["| master | owner | Order |", "| owner | | *waits* |"]
    with pytest.raises(ValueError, match="makes no table"):
        hooks.table_of("pie\n    a: 1\n")


def test_links_of_files_outside_docs_lead_to_their_pages(hooks: ModuleType) -> None:
    moved = hooks.linked_from(
        "ARCHITECTURE.md", "explanation/architecture.md", "[a](docs/spark.md#streams) [b](src/x.py)"
    )
    assert moved == "[a](../spark.md#streams) [b](src/x.py)"
    assert hooks.linked_from("docs/spark.md", "spark.md", "[h](../HACKING.md)") == "[h](how-to/hacking.md)"
