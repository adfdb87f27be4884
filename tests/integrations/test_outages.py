"""Caches of frameworks while no member answers: one call finds it out, all others end at once, and the site goes on."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings as site
from django.core.exceptions import ImproperlyConfigured
from dogpile.cache import make_region

import phalanx
from phalanx.common.errors import GridFull, IndeterminateWrite, NotEnoughMembers, UnavailableError
from phalanx.integrations import shared_grids
from phalanx.integrations.django import PhalanxCache
from phalanx.integrations.flask_caching import FlaskCachingBackend
from phalanx.integrations.shared_grids import CachedMap, SharedGrid
from support.processes import free_port

QUICK = 0.5
"""Far less than any of the time limits of these tests."""


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_grids, "_shared", {})
    if not site.configured:
        site.configure()


@pytest.fixture
def grid() -> Iterator[phalanx.MemberThread]:
    with phalanx.start_member_in_thread(phalanx.Config(port=0)) as member:
        yield member


class Clock:
    """The time of `shared_grids`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr(shared_grids, "monotonic", lambda: self.now_s)


class Failing:
    """A grid whose maps raise what they are told."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: Exception | None = None

    def map(self, name: str) -> Any:
        return self

    def ask(self) -> str:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return "answered"


def ask(entries: Any) -> str:
    """Ask a failing grid."""
    answer: str = entries.ask()
    return answer


def cached(grid: Any, **terms: Any) -> CachedMap:
    return CachedMap(SharedGrid(lambda: grid), "m", **{"ignore_errors": False, "retry_after": 5, **terms})


def test_after_a_call_without_an_answer_others_end_at_once_and_one_tries_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, grid = Clock(monkeypatch), Failing()
    entries = cached(grid)
    grid.error = UnavailableError("nobody is there")
    with caplog.at_level(logging.INFO, "phalanx.cache"):
        with pytest.raises(UnavailableError, match="nobody is there"):
            entries.use(ask, "nothing")
        for _ in range(3):
            with pytest.raises(UnavailableError, match=r"is not asked for another 5\.0 s: nobody is there"):
                entries.use(ask, "nothing")
        assert grid.calls == 1
        clock.now_s += 5
        with pytest.raises(UnavailableError, match="nobody is there"):
            entries.use(ask, "nothing")
        clock.now_s += 4.9
        with pytest.raises(UnavailableError, match="is not asked"):
            entries.use(ask, "nothing")
        assert grid.calls == 2
        grid.error = None
        clock.now_s += 0.1
        assert entries.use(ask, "nothing") == entries.use(ask, "nothing") == "answered"
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"], (
        "one line for each outage, and one for its end"
    )


def test_while_one_call_tries_again_the_others_do_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, grid = Clock(monkeypatch), Failing()
    entries = cached(grid, ignore_errors=True)
    grid.error = IndeterminateWrite("unknown")
    assert entries.use(ask, "nothing") == "nothing"
    clock.now_s += 5
    grid.error = None

    def try_again(each: Any) -> Any:
        assert entries.use(ask, "nothing") == "nothing", "another call at the same time"
        return each.ask()

    assert entries.use(try_again, "nothing") == "answered"
    assert entries.use(ask, "nothing") == "answered"


@pytest.mark.parametrize("error", [NotEnoughMembers("too few"), GridFull("full"), phalanx.UsageError("wrong")])
def test_what_is_answered_at_once_is_no_outage(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    Clock(monkeypatch)
    grid = Failing()
    strict, lenient = cached(grid), cached(grid, ignore_errors=True)
    grid.error = error
    for _ in range(2):
        with pytest.raises(type(error)):
            strict.use(ask, "nothing")
    assert grid.calls == 2
    if isinstance(error, phalanx.UsageError):
        with pytest.raises(phalanx.UsageError, match="wrong"):
            lenient.use(ask, "nothing")
    else:
        assert lenient.use(ask, "nothing") == "nothing"
    with pytest.raises(type(error)):
        lenient.ask(ask)


def test_threads_that_wait_for_a_connection_do_not_try_it_one_after_the_other() -> None:
    tries, goes_on, found = [], threading.Event(), []

    def connect() -> Any:
        tries.append(1)
        goes_on.wait(30)
        raise phalanx.ConnectError("nobody listens")

    entries = CachedMap(SharedGrid(connect), "m", ignore_errors=False, retry_after=5)

    def use() -> None:
        try:
            entries.use(lambda each: each.size(), 0)
        except UnavailableError as error:
            found.append(str(error))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for each in threads:
        each.start()
    goes_on.set()
    for each in threads:
        each.join(30)
    assert len(found) == 8
    assert all("nobody listens" in each for each in found)
    assert len(tries) == 1


def test_without_a_pause_each_call_asks() -> None:
    grid = Failing()
    grid.error = UnavailableError("nobody is there")
    entries = cached(grid, ignore_errors=True, retry_after=0)
    assert [entries.use(ask, "nothing") for _ in range(3)] == ["nothing"] * 3
    assert grid.calls == 3


def test_a_forked_process_does_not_wait_for_a_thread_of_its_parent() -> None:
    shared = SharedGrid(Failing)
    entries = CachedMap(shared, "m", ignore_errors=False, retry_after=5)
    with shared._connecting:
        child = os.fork()
        if not child:
            signal.alarm(30)  # ends a child that waits
            os._exit(0 if entries.use(ask, "nothing") == "answered" else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_site_goes_on_without_any_member_and_with_one_that_comes(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    given = {"IGNORE_ERRORS": True, "CONNECT_TIMEOUT": 0.2, "RETRY_AFTER": 0.3, "MAP": "site"}
    cache = PhalanxCache(f"127.0.0.1:{port}", {"OPTIONS": given})
    began = time.monotonic()
    assert cache.get("k", "made here") == "made here"
    for _ in range(200):
        cache.set("k", 1)
    assert (cache.add("k", 1), cache.touch("k"), cache.delete("k"), cache.has_key("k")) == (False,) * 4
    assert (cache.get_many(["k"]), cache.set_many({"k": 1}), cache.ttl("k"), cache.delete_pattern("*")) == (
        {},
        ["k"],
        0,
        0,
    )
    cache.delete_many(["k"])
    cache.clear()
    with pytest.raises(ValueError, match="Key 'k' not found"):
        cache.incr("k")
    with pytest.raises(UnavailableError):
        cache.lock("k")
    assert time.monotonic() - began < 200 * 0.2, "one call waited, and not each"
    with phalanx.start_member_in_thread(phalanx.Config(port=port)):
        deadline = time.monotonic() + 30
        while cache.get("k") != 1 and time.monotonic() < deadline:
            cache.set("k", 1)
        assert cache.get("k") == 1


def test_a_member_that_goes_while_it_is_used_costs_one_call() -> None:
    options = {"IGNORE_ERRORS": True, "CALL_TIMEOUT": 2.0, "RETRY_AFTER": 600}
    with phalanx.start_member_in_thread(phalanx.Config(port=0)) as member:
        cache = PhalanxCache(member.address, {"OPTIONS": options})
        cache.set("k", 1)
        assert cache.get("k") == 1
    began = time.monotonic()
    assert [cache.get("k", "made here") for _ in range(200)] == ["made here"] * 200
    assert time.monotonic() - began < 200 * 2.0 / 2


def test_the_other_backends_go_on_as_empty_caches() -> None:
    members = f"127.0.0.1:{free_port()}"
    flask = FlaskCachingBackend(members=members, ignore_errors=True, connect_timeout_s=0.2)
    assert (flask.get("k"), flask.get_many("k", "l"), flask.has("k")) == (None, [None, None], False)
    assert (flask.set("k", 1), flask.add("k", 1), flask.set_many({"k": 1}), flask.delete("k")) == (
        False,
        False,
        [],
        False,
    )
    assert (flask.inc("k"), flask.clear(), flask.ttl("k"), flask.delete_pattern("*")) == (None, False, 0, 0)
    arguments = {"members": members, "ignore_errors": True, "connect_timeout_s": 0.2}
    region = make_region().configure("phalanx", expiration_time=60, arguments=arguments)
    assert [region.get_or_create("k", lambda: "made") for _ in range(3)] == ["made"] * 3
    assert not any(region.get_multi(["k", "l"]))  # type: ignore[no-untyped-call]
    region.set_multi({"k": 1})
    region.delete_multi(["k"])
    assert not region.backend.get_mutex("k").locked()


def test_errors_reach_the_caller_unless_they_are_ignored() -> None:
    cache = PhalanxCache(f"127.0.0.1:{free_port()}", {"OPTIONS": {"CONNECT_TIMEOUT": 0.1}})
    with pytest.raises(phalanx.ConnectError):
        cache.get("k")
    began = time.monotonic()
    with pytest.raises(UnavailableError, match="is not asked for another"):
        cache.get("k")
    assert time.monotonic() - began < QUICK


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"IGNORE_ERRORS": "no"}, "ignore_errors is 'no': give True or False"),
        ({"RETRY_AFTER": -1}, "retry_after is -1: give seconds"),
        ({"CALL_TIMEOUT": 0}, "call_timeout_s is 0: give seconds"),
    ],
)
def test_options_are_checked_when_the_site_is_loaded(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=told):
        PhalanxCache("127.0.0.1:1", {"OPTIONS": options})


def test_caches_of_one_site_share_a_client_whatever_their_members_are_written_as(grid: phalanx.MemberThread) -> None:
    url = f"phalanx://{grid.address}/phalanx"
    arguments: dict[str, Any] = {"members": [url]}
    region = make_region().configure("phalanx", expiration_time=60, arguments={**arguments, "map": "m"})
    region.set("k", 1)
    PhalanxCache([url], {"OPTIONS": {"MAP": "m"}}).set("n", 1)
    FlaskCachingBackend(members=url, map="m").set("f", 1)
    assert grid.map("m").size() == 3
    assert len(shared_grids._shared) == 1
    with pytest.raises(ImproperlyConfigured, match="'nowhere' is not an address"):
        PhalanxCache("nowhere", {})


def test_what_django_redis_has_is_there(grid: phalanx.MemberThread) -> None:
    made = {"MAP": "site"}
    cache = PhalanxCache(grid.address, {"KEY_PREFIX": "a*", "OPTIONS": made})
    other = PhalanxCache(grid.address, {"KEY_PREFIX": "ab", "OPTIONS": made})
    cache.set("short", 1, timeout=60)
    cache.set("long", 1, timeout=None)
    assert 50 < (cache.ttl("short") or 0) <= 60
    assert (cache.ttl("long"), cache.ttl("absent")) == (None, 0)
    other.set("short", 1)
    cache.set("short", 1, version=2)
    assert cache.delete_pattern("s?[xy]*") == 0
    assert cache.delete_pattern("s*t") == 1
    assert (cache.get("short"), cache.get("long"), cache.get("short", version=2), other.get("short")) == (None, 1, 1, 1)
    assert cache.delete_pattern("*", version=2) == 1
    with pytest.raises(phalanx.UsageError, match="a pattern has at most"):
        cache.delete_pattern("x" * 5000)
    with cache.lock("job", timeout=5, blocking_timeout=1) as held:
        assert held.is_held
        refused: list[bool] = []
        thread = threading.Thread(target=lambda: refused.append(cache.lock("job", blocking_timeout=0).acquire()))
        thread.start()
        thread.join(30)
        assert refused == [False]
    flask = FlaskCachingBackend(grid=grid, map="flask", key_prefix="p*:", default_timeout=60)
    flask.set("one", 1)
    flask.set("two", 2, timeout=0)
    grid.map("flask")["px:one"] = 1
    assert (flask.ttl("one"), flask.ttl("two"), flask.ttl("absent")) == (60, None, 0)
    with flask.lock("job", blocking_timeout=1) as held:
        assert held.is_held
    assert flask.delete_pattern("[ot]*") == 2
    assert list(grid.map("flask")) == ["px:one"]
