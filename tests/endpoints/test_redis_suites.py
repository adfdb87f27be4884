"""What others test Redis with: Django's cache backend for Redis and Flask-Caching's run against a member."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import flask
import flask_caching
import pytest

import phalanx
from support.roots import TESTS
from support.source_archives import unpacked

DJANGO_SUITE = TESTS / "integrations" / "django_suite.py"


@pytest.fixture(scope="module")
def member() -> Iterator[phalanx.MemberThread]:
    with phalanx.start_member_in_thread(phalanx.Config(port=0, serve=("redis",))) as running:
        yield running


@pytest.mark.long  # Django's source is fetched; tests of the cache of Django in tests/integrations are played each time
@pytest.mark.timeout(240)
def test_django_s_redis_backend_passes_django_s_own_tests(
    member: phalanx.MemberThread, tmp_path_factory: pytest.TempPathFactory
) -> None:
    source = unpacked("django", tmp_path_factory.mktemp("django"))
    url, backend = f"redis://{member.address}", "django.core.cache.backends.redis.RedisCache"
    done = subprocess.run(
        [sys.executable, DJANGO_SUITE, source, url, backend], capture_output=True, text=True, check=False
    )
    told = re.fullmatch(r"passed (\d+), skipped (\d+), failed (\d+)", done.stdout.strip().splitlines()[-1])
    assert told is not None, done.stderr
    assert told[3] == "0", done.stderr
    assert int(told[1]) >= 50


def test_flask_caching_keeps_what_it_should_in_a_member(member: phalanx.MemberThread) -> None:
    app = flask.Flask(__name__)
    app.config |= {
        "CACHE_TYPE": "RedisCache",
        "CACHE_REDIS_URL": f"redis://{member.address}/3",
        "CACHE_KEY_PREFIX": "f:",
    }
    cache = flask_caching.Cache(app)
    calls: list[int] = []

    @cache.memoize(60)
    def double(number: int) -> int:
        calls.append(number)
        return 2 * number

    with app.app_context():
        assert cache.set_many({"a": 1, "b": [2]})
        assert (cache.get_many("a", "b", "c"), cache.has("a")) == ([1, [2], None], True)
        assert cache.add("a", 5) is False
        assert cache.get("a") == 1
        assert [double(4), double(4)] == [8, 8]
        cache.delete_memoized(double)
        assert double(4) == 8
        assert calls == [4, 4]
        assert cache.delete("a")
        cache.clear()
        assert cache.get("b") is None
