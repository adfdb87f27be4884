"""The cache backend of Django passes Django's own tests, and serves sessions, threads and forked processes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import phalanx
from support.source_archives import unpacked

SUITE = Path(__file__).with_name("django_suite.py")


@pytest.fixture(scope="module")
def grid() -> Iterator[phalanx.MemberThread]:
    with phalanx.start_member_in_thread(phalanx.Config(port=0)) as member:
        yield member


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("django", tmp_path_factory.mktemp("django"))


@pytest.mark.long
@pytest.mark.timeout(240)
def test_django_s_own_tests_of_backends_pass(grid: phalanx.MemberThread, source: Path) -> None:
    done = subprocess.run([sys.executable, SUITE, source, grid.address], capture_output=True, text=True, check=False)
    told = re.fullmatch(r"passed (\d+), skipped (\d+), failed (\d+)", done.stdout.strip().splitlines()[-1])
    assert told is not None, done.stderr
    assert (told[3], told[2]) == ("0", "0"), done.stderr
    assert int(told[1]) >= 50


SITE = """
import os, sys, threading
import django
from django.conf import settings
settings.configure(
    CACHES={{
        "default": {{"BACKEND": "phalanx.integrations.django.PhalanxCache", "LOCATION": {members!r}, "OPTIONS": {{"MAP": "site"}}}},
        "prefixed": {{
            "BACKEND": "phalanx.integrations.django.PhalanxCache", "LOCATION": [{members!r}], "KEY_PREFIX": "p", "OPTIONS": {{"MAP": "site"}},
        }},
    }},
    INSTALLED_APPS=["django.contrib.sessions"],
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    SECRET_KEY="x",
)
django.setup()
from django.core.cache import cache, caches
{text}
"""


def run_site(grid: phalanx.MemberThread, tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "site_program.py"
    program.write_text(SITE.format(members=grid.address, text=text))
    return subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=False)


def test_sessions_counters_and_prefixes(grid: phalanx.MemberThread, tmp_path: Path) -> None:
    done = run_site(grid, tmp_path, """
from importlib import import_module
store = import_module(settings.SESSION_ENGINE).SessionStore
session = store()
session["user"] = 7
session.save()
assert store(session_key=session.session_key)["user"] == 7
session.delete()
assert not store().exists(session.session_key)
cache.set("n", 0)
caches["prefixed"].set_many({"a": 1, "b": [1]}, timeout=60)
caches["prefixed"].clear()
assert caches["prefixed"].get_many(["a", "b"]) == {}
assert cache.get("n") == 0, "the entries of another prefix stay"
def count():
    for _ in range(100):
        cache.incr("n")
threads = [threading.Thread(target=count) for _ in range(4)]
children = []
for _ in range(3):
    child = os.fork()
    if not child:
        count()
        os._exit(0)
    children.append(child)
for thread in threads: thread.start()
for thread in threads: thread.join()
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
print(cache.get("n"))
""")  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "700\n"), done.stderr
    assert grid.map("site")[":1:n"] == 700, "other programs read numbers as numbers"


def test_a_counter_that_ends_while_it_is_counted_is_not_begun_anew(grid: phalanx.MemberThread, tmp_path: Path) -> None:
    """What looks and then adds makes a counter without an end of one whose time ends between."""
    done = run_site(grid, tmp_path, """
from phalanx.client.blocking.sync_map import SyncMap
increment = SyncMap.increment
def when_its_time_has_ended(entries, key, *args, **named):
    entries.remove(key)
    return increment(entries, key, *args, **named)
cache.set("ends", 1, timeout=60)
SyncMap.increment = when_its_time_has_ended
try:
    print(cache.incr("ends"))
except ValueError as error:
    print(error)
SyncMap.increment = increment
cache.set("kept", 1, timeout=60)
print(cache.get("ends"), cache.incr("kept", 2), cache.decr("kept"))
""")  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "Key 'ends' not found\nNone 3 2\n"), done.stderr
    left = grid.map("site").time_to_live(":1:kept")
    assert left is not None
    assert 50 < left <= 60


@pytest.mark.parametrize(
    ("prefix", "other", "with_function"), [("site", "site:eu", False), ("site:eu", "site", False), ("p", "p", True)]
)
def test_clear_removes_the_entries_of_one_prefix(
    grid: phalanx.MemberThread, tmp_path: Path, prefix: str, other: str, with_function: bool
) -> None:
    """With a KEY_FUNCTION nobody can tell whose a key is: all of the map goes, as Django says of `clear`."""
    done = run_site(grid, tmp_path, f"""
from phalanx.integrations.django import PhalanxCache
def made(prefix, **more):
    function = (lambda key, prefix, version: f"{{key}}@{{prefix}}#{{version}}") if {with_function} else None
    params = {{"KEY_PREFIX": prefix, "KEY_FUNCTION": function, "OPTIONS": {{"MAP": "prefixes"}}, **more}}
    return PhalanxCache({grid.address!r}, params)
one, old, other = made({prefix!r}), made({prefix!r}, VERSION=7), made({other!r}, VERSION=3)
for each in (one, old, other):
    each.set("k", b"v", None)
other.set("x:y", 1)
one.clear()
print([each.get("k") for each in (one, old, other)], other.get("x:y"))
other.clear()
""")  # fmt: skip
    left = "[None, None, None] None" if with_function else "[None, None, b'v'] 1"
    assert (done.returncode, done.stdout) == (0, f"{left}\n"), done.stderr


def test_a_worker_with_a_member_of_its_own_uses_that(grid: phalanx.MemberThread, tmp_path: Path) -> None:
    (tmp_path / "mysite.py").write_text(f"import phalanx\ngrid = phalanx.Client({grid.address!r})\n")
    done = run_site(grid, tmp_path, """
from phalanx.integrations.django import PhalanxCache
own = PhalanxCache("", {"OPTIONS": {"GRID": "mysite.grid", "MAP": "site"}})
own.set("own", (1, [2]))
print(cache.get("own"))
""")  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "(1, [2])\n"), done.stderr


@pytest.mark.parametrize(
    ("location", "options", "told"),
    [
        ("", {}, "give PhalanxCache a LOCATION"),
        ("127.0.0.1:1", {"MAPP": "x"}, "OPTIONS has MAPP; PhalanxCache knows MAP, GRID, IGNORE_ERRORS"),
    ],
)
def test_settings_that_are_wrong_are_named(location: str, options: dict[str, str], told: str) -> None:
    from django.core.exceptions import ImproperlyConfigured

    from phalanx.integrations.django import PhalanxCache

    with pytest.raises(ImproperlyConfigured, match=told):
        PhalanxCache(location, {"OPTIONS": options})


def test_without_members_it_says_so_when_it_is_used() -> None:
    from django.conf import settings

    from phalanx.integrations.django import PhalanxCache

    if not settings.configured:
        settings.configure()
    cache = PhalanxCache("127.0.0.1:1", {"OPTIONS": {"CALL_TIMEOUT": 0.3}})
    with pytest.raises(phalanx.ConnectError):
        cache.get("k")
