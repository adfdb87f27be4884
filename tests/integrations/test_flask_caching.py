"""The backend of Flask-Caching passes Flask-Caching's own tests, and counts in one step for all processes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flask
import pytest
from flask_caching import Cache

import phalanx
from phalanx.client.blocking.sync_map import SyncMap
from phalanx.integrations.flask_caching import FlaskCachingBackend
from phalanx.testing import LocalCluster
from support.source_archives import unpacked

FIXTURES = Path(__file__).with_name("flask_fixtures.py")
THEIR_TESTS = (
    "test_cache.py",
    "test_cachelib.py",
    "test_memoize.py",
    "test_serializer.py",
    "test_templates.py",
    "test_view.py",
)
LEFT_OUT = (
    "test_cache_unlink",  # asks for Redis
    "test_values_are_stored_in_the_configured_format",  # looks into the dict of another backend
    # Minutes of a clock that is theirs: the grid's goes on as it does.
    "test_memoize_delete_resets_version_key",
    "test_memoize_entry_written_late_keeps_its_own_timeout",
    "test_memoize_version_key_expires_once_its_entries_have",
    "test_memoize_version_key_outlives_newest_entry",
)
OF_BACKENDS = """
import uuid
import pytest
from test_backend_cache import GenericCacheTests
from phalanx.integrations.flask_caching import FlaskCachingBackend
from conftest import MEMBERS

class TestBackend(GenericCacheTests):
    _can_use_fast_sleep = False

    @pytest.fixture
    def make_cache(self):
        return lambda: FlaskCachingBackend(members=MEMBERS, map=f"flask-{uuid.uuid4()}")
"""


@pytest.fixture(scope="module")
def grid() -> Iterator[phalanx.MemberThread]:
    with LocalCluster(1, cluster="phalanx") as cluster:
        yield cluster["A"]


@pytest.mark.long
@pytest.mark.timeout(240)
def test_flask_caching_s_own_tests_pass(
    grid: phalanx.MemberThread, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    source = unpacked("flask-caching", tmp_path_factory.mktemp("flask")) / "tests"
    for each in (*THEIR_TESTS, "test_backend_cache.py", "test_template.html", "test_stream.html"):
        shutil.copy(source / each, tmp_path)
    shutil.copy(FIXTURES, tmp_path / "conftest.py")
    (tmp_path / "test_phalanx_backend.py").write_text(OF_BACKENDS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "8", "--timeout", "60", "-p", "no:cacheprovider",
         "-k", " and ".join(f"not {each}" for each in LEFT_OUT), "test_phalanx_backend.py", *THEIR_TESTS],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST")} | {"PHALANX_MEMBERS": grid.address},
    )  # fmt: skip
    told = re.search(r"(\d+) passed", done.stdout)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout.splitlines()[-1], done.stdout
    assert told is not None
    assert int(told[1]) >= 140


def application(grid: object, **settings: Any) -> tuple[flask.Flask, Cache]:
    app = flask.Flask(__name__)
    config = {
        "CACHE_TYPE": "phalanx.integrations.flask_caching.FlaskCachingBackend",
        "CACHE_PHALANX_GRID": grid,
        **settings,
    }
    return app, Cache(app, config={name: value for name, value in config.items() if value is not None})


def test_all_applications_share_what_one_has_computed(grid: phalanx.MemberThread) -> None:
    calls = []

    def page() -> str:
        calls.append(1)
        return "made once"

    for settings in ({}, {"CACHE_PHALANX_GRID": None, "CACHE_PHALANX_MEMBERS": grid.address}):
        app, cache = application(grid, **settings)
        app.add_url_rule("/page", view_func=cache.cached(timeout=60)(page))
        assert app.test_client().get("/page").data == b"made once"
    assert len(calls) == 1


def test_threads_count_in_one_step(grid: phalanx.MemberThread) -> None:
    cache = FlaskCachingBackend(grid=grid, map="counts")
    threads = [threading.Thread(target=lambda: [cache.inc("n") for _ in range(100)]) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert cache.get("n") == 400
    assert grid.map("counts").get("n") == 400
    assert cache.dec("n", 400) == 0
    cache.set("text", "x")
    with pytest.raises(TypeError, match="'text' is not a number: str"):
        cache.inc("text")


def test_a_counter_that_ends_while_it_is_counted_has_an_end_again(
    grid: phalanx.MemberThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What looks and then adds makes a counter without an end of one whose time ends between."""
    cache, entries = FlaskCachingBackend(grid=grid, map="ends", default_timeout=60), grid.map("ends")
    increment, calls = SyncMap.increment, []

    def when_its_time_has_ended(self: SyncMap[str, Any], key: str, *args: Any, **named: Any) -> Any:
        calls.append(key)
        if len(calls) == 1:
            self.remove(key)
        return increment(self, key, *args, **named)

    monkeypatch.setattr(SyncMap, "increment", when_its_time_has_ended)
    cache.set("n", 1)
    assert cache.inc("n", 5) == 5
    assert (entries.time_to_live("n") or 0) > 50
    assert cache.inc("n", 0.5) == 5.5, "the sum as it is stored"
    assert (entries.time_to_live("n") or 0) > 50


def test_clear_removes_what_has_its_prefix(grid: phalanx.MemberThread) -> None:
    one, other = (FlaskCachingBackend(grid=grid, map="both", key_prefix=prefix) for prefix in ("one:", "other:"))
    one.set("k", 1)
    other.set("k", 2)
    one.clear()
    assert (one.get("k"), other.get("k")) == (None, 2)
    FlaskCachingBackend(grid=grid, map="both").clear()
    assert other.get("k") is None


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"CACHE_PHALANX_GRID": None}, "give CACHE_PHALANX_MEMBERS .* or CACHE_PHALANX_GRID"),
        ({"CACHE_PHALANX_MEMBERS": "127.0.0.1:5701"}, "and not both"),
        ({"CACHE_PHALANX_MAPP": "x"}, "there is no CACHE_PHALANX_MAPP; FlaskCachingBackend knows MEMBERS, GRID, MAP"),
    ],
)
def test_wrong_settings_are_told(grid: phalanx.MemberThread, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(phalanx.UsageError, match=told):
        application(grid, **settings)
