"""The blocking map as a `MutableMapping`, while others change it: what is composed of several requests, and what is one."""

import itertools
from collections.abc import Callable
from typing import Any, cast

import pytest

from phalanx.client.blocking.sync_map import SyncMap
from phalanx.client.sync import Client
from phalanx.codec.values import to_data, to_key_data
from phalanx.common.ids import Lost
from phalanx.wire import messages as m


class Owner:
    """The client of a cluster of one partition; after each answer others get their turn."""

    partition_count = 1
    call_timeout_s = 1.0
    open_from = 0

    def __init__(self, entries: dict[Any, Any]) -> None:
        self.stored = {to_key_data(key): to_data(value) for key, value in entries.items()}
        self.next_id = itertools.count(1).__next__
        self.others: Callable[[], object] = lambda: None

    def partition_table(self) -> "Owner":
        return self

    def call_all(self, requests: list[tuple[int, Any]], within_ms: int = 0, lost: Lost = ()) -> list[Any]:
        return [self.call(*each) for each in requests]

    def call(self, partition: int, request: Any) -> Any:
        reply = self._answer(request)
        self.others()
        return reply

    def _answer(self, request: Any) -> Any:
        match request:
            case m.ScanPartition():
                return m.PageReply(request.id, list(self.stored), list(self.stored.values()), False)
            case m.Get():
                return m.ValueReply(request.id, self.stored.get(request.key))
            case m.Remove():
                return m.ValueReply(request.id, self.stored.pop(request.key, None))
            case m.PutIfAbsent():
                present = self.stored.get(request.key)
                self.stored.setdefault(request.key, request.value)
                return m.ValueReply(request.id, present)
            case _:
                raise AssertionError(request)


def opened(entries: dict[Any, Any]) -> tuple[SyncMap[Any, Any], Owner]:
    owner = Owner(entries)
    return SyncMap("m", cast(Client, owner)), owner


def test_entries_that_others_remove_while_all_are_looked_at_are_no_error() -> None:
    found, owner = opened({"a": 1, "b": None})
    owner.others = owner.stored.clear
    assert list(iter(found.items())) == [("a", 1), ("b", None)]
    assert list(iter(found.values())) == []
    owner.stored.update({to_key_data("a"): to_data(1)})
    assert list(iter(found.values())) == [1]


def test_views_know_what_is_in_them() -> None:
    found, _ = opened({"a": 1, "b": [2]})
    assert ("a", 1) in found.items()
    assert ("a", 2) not in found.items()
    assert ("c", 1) not in found.items()
    assert [2] in found.values()
    assert 3 not in found.values()


def test_what_is_popped_is_what_was_removed_and_once() -> None:
    found, owner = opened({"a": 1, "b": None})
    owner.others = owner.stored.clear
    assert found.pop("a") == 1
    assert found.pop("a", "other") == "other"
    with pytest.raises(KeyError):
        found.pop("a")


def test_an_item_is_popped_even_if_others_remove_the_first_ones() -> None:
    found, owner = opened({"a": 1, "b": 2})
    owner.others = lambda: owner.stored.pop(to_key_data("a"), None)
    assert found.popitem() == ("b", 2)
    with pytest.raises(KeyError):
        found.popitem()


def test_a_default_takes_no_others_value_away() -> None:
    found, owner = opened({"a": None})
    owner.others = lambda: owner.stored.setdefault(to_key_data("b"), to_data("theirs"))
    assert found.setdefault("a", 1) is None
    assert found.setdefault("b", "mine") == "theirs"
    assert found.setdefault("c", "mine") == "mine"
