"""The words for a cluster that waits: they name whom to start, and no command that gives anything up."""

from phalanx.common.ids import Address, member_id
from phalanx.common.restart_wait import RestartWait, wait_in_words
from phalanx.reports.partitions import wait_as_object

B, C = member_id(Address("10.0.0.2:5701"), "b"), member_id(Address("10.0.0.3:5701"), "c")
AT_MS = 1_764_241_334_567


def test_one_member_is_named_with_when_it_was_seen() -> None:
    said = wait_in_words(RestartWait((C,), 90, False, AT_MS))
    assert said == (
        "the cluster was switched off and waits for 10.0.0.3:5701 (last seen at 2025-11-27 11:02:14 UTC): "
        "no member that is here has all of 90 partitions; start it with its folder"
    )


def test_several_are_named_with_all_that_is_missing() -> None:
    said = wait_in_words(RestartWait((B, C), 1, True, 0))
    assert said == (
        "the cluster was switched off and waits for 10.0.0.2:5701, 10.0.0.3:5701: the majority of its last members is "
        "not back and no member that is here has all of 1 partition; start them with their folders"
    )


def test_a_wait_that_ends_by_itself_asks_for_nothing() -> None:
    said = wait_in_words(RestartWait((C,), 0, False, 0))
    assert said == "the cluster was switched off and waits for 10.0.0.3:5701 for a moment; then it goes on without"


def test_folders_that_name_nobody_who_is_missing_are_told_so() -> None:
    assert "waits for members that nobody here knows: " in wait_in_words(RestartWait((), 3, True, 0))


def test_no_words_name_a_command_that_loses_data() -> None:
    for wait in (RestartWait((C,), 90, True, AT_MS), RestartWait((), 0, True, 0), RestartWait((B, C), 0, False, 0)):
        assert "--" not in wait_in_words(wait)


def test_several_clusters_are_named_by_their_members() -> None:
    said = wait_in_words(RestartWait((), 0, True, AT_MS, ((B,), (C,))))
    assert said == (
        "nothing is served: the members that are here have the data of several clusters, 10.0.0.2:5701 that of one, and "
        "10.0.0.3:5701 that of another one; stop all but those of one"
    )


def test_programs_are_given_the_members_of_each_cluster() -> None:
    mixed, missing = (wait_as_object(RestartWait((), 0, True, 0, clusters)) for clusters in [((B,), (C,)), ()])
    assert mixed is not None
    assert missing is not None
    assert mixed["clusters"] == [["10.0.0.2:5701"], ["10.0.0.3:5701"]]
    assert missing["clusters"] == []
