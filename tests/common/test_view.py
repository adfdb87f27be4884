"""The member list as a value, and how it is logged."""

import pytest

from phalanx.common.errors import InvariantViolation
from phalanx.common.ids import MemberId
from phalanx.common.view import MembersView
from support.harness import lone_id, lone_view

LOCAL = [MemberId(f"127.0.0.1:570{n}/{uuid}") for n, uuid in enumerate(
    ("e40081de-056a-4ae5-8ffe-632caf8a6cf1", "93e82109-16bf-4b16-9c87-f4a6d0873080", "5e3b7a1c-0000-4000-8000-000000000000"), 1
)]  # fmt: skip
VIEW = MembersView(3, LOCAL[0], tuple(LOCAL))


@pytest.mark.rows("CS-75", "CS-76")
def test_the_log_form_has_size_and_version() -> None:
    assert VIEW.log_lines(LOCAL[1]) == [
        "Members {size:3, ver:3} [",
        "    Member [127.0.0.1]:5701 - e40081de-056a-4ae5-8ffe-632caf8a6cf1",
        "    Member [127.0.0.1]:5702 - 93e82109-16bf-4b16-9c87-f4a6d0873080 this",
        "    Member [127.0.0.1]:5703 - 5e3b7a1c-0000-4000-8000-000000000000",
        "]",
    ]


@pytest.mark.rows("CS-74", "CS-76")
def test_the_legacy_log_form_has_the_size_alone() -> None:
    assert VIEW.log_lines(LOCAL[0], legacy=True) == [
        "Members [3] {",
        "    Member [127.0.0.1]:5701 - e40081de-056a-4ae5-8ffe-632caf8a6cf1 this",
        "    Member [127.0.0.1]:5702 - 93e82109-16bf-4b16-9c87-f4a6d0873080",
        "    Member [127.0.0.1]:5703 - 5e3b7a1c-0000-4000-8000-000000000000",
        "}",
    ]


@pytest.mark.rows("CS-76")
def test_a_list_seen_from_outside_marks_nobody_and_an_ipv6_host_is_in_brackets_once() -> None:
    outside = MembersView(1, MemberId("[::1]:5701/x"), (MemberId("[::1]:5701/x"),))
    assert outside.log_lines()[1] == "    Member [::1]:5701 - x"


@pytest.mark.rows("CS-06", "CS-07", "EL-01")
def test_age_is_position_and_the_oldest_is_the_master() -> None:
    view = lone_view("ABC", 1)
    assert view.master == lone_id("A")
    assert view.older_than(lone_id("A")) == ()
    assert view.older_than(lone_id("C")) == (lone_id("A"), lone_id("B"))
    assert view.younger_than(lone_id("A")) == (lone_id("B"), lone_id("C"))
    assert view.younger_than(lone_id("C")) == ()
    later = lone_view("BCA", 2)
    assert later.master == lone_id("B"), "whatever the names say"
    assert later.older_than(lone_id("A")) == (lone_id("B"), lone_id("C"))
    assert later.younger_than(lone_id("C")) == (lone_id("A"),)
    with pytest.raises(InvariantViolation, match="only a member has older members"):
        view.older_than(lone_id("Z"))


@pytest.mark.rows("CS-05", "CS-10", "CS-11", "EL-37", "EL-15")
def test_a_change_makes_the_next_version_and_joiners_are_the_youngest() -> None:
    view = lone_view("ABC", 6)
    assert view.with_change(lone_id("A"), frozenset({lone_id("B")}), (lone_id("D"),)) == lone_view("ACD", 7)
