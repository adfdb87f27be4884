"""Histories in which all processes end at once, some without power, and come back with their folders; logs and restarts that go wrong."""

import pytest

from phalanx_proof.sim.options import Profile
from planted_bugs.disk import DISK_CANARIES
from planted_bugs.folders import DISK_WORLDS
from support.planted import assert_found, find

LOG_OF = {
    "log-no-puts": Profile.DEFAULT,
    "log-no-removals": Profile.DEFAULT,
    "log-no-updates": Profile.DEFAULT,
    "log-no-clears": Profile.BOUNDED,
    "log-no-journal-changes": Profile.JOURNAL,
    "log-no-steps": Profile.STAGING,
    "log-no-writes-to-copies": Profile.DEFAULT,
    "log-no-chunks": Profile.DEFAULT,
    "log-no-epochs": Profile.DEFAULT,
    "log-no-drops": Profile.DEFAULT,
    "log-no-dropped-copies": Profile.MIGRATIONS,
    "log-no-divisions": Profile.MIGRATIONS,
    "log-no-kept-replicas": Profile.CUTS,
    "log-no-merges": Profile.CUTS,
    "log-no-begun-merges": Profile.OUTAGE,
    "log-no-replicas-taken-back": Profile.RESTART,
    "log-no-plain-puts": Profile.DEFAULT,
    "log-no-outcomes": Profile.DEFAULT,
    "log-plain-puts-first": Profile.DEFAULT,
    "log-plain-puts-twice": Profile.DEFAULT,
    "copy-no-outcomes": Profile.OUTAGE,
    "copy-past-steps": Profile.OUTAGE,
    "believe-every-beginning": Profile.OUTAGE,
    "begin-times-anew": Profile.OUTAGE,
    "take-errors-for-the-end": Profile.RESTART,
    "remove-one-segment-too-many": Profile.OUTAGE,
    "say-synced-too-early": Profile.OUTAGE,
    "end-before-the-sync": Profile.OUTAGE,
    "write-behind-the-end": Profile.OUTAGE,
    "sync-again": Profile.RESTART,
}
"""Bugs of logs, to the profile whose histories have what the log misses."""

WRONG_LOGS = {
    "reading a log back gives the replicas in memory",
    "nothing that is needed is removed with a segment",
    "a member never fails",  # it cannot be read at all
}
"""What histories with such bugs say, one of these at least."""

FAILING = {
    "acknowledge-without-disk": {"nobody acknowledges writes without a disk"},
    "leave-with-what-it-holds": {"who leaves because of its disk holds nothing"},
    "keep-owners-without-disks": {
        "owners have disks where any member has one",
        "the cluster becomes whole after healing",
    },
    "wait-for-a-failed-sync": {"the cluster becomes whole after healing"},
    "refuse-removals-when-full": {"reads and removals need no memory"},
}
"""Bugs of disks that fail or are full while members run, to what a history says then."""

RESTARTS = (
    "take-an-older-row", "take-all-for-prefixes", "restart-without-holders", "forget-as-last-leaver", "begin-dormant-empty", "forget-for-dormant",
    "forget-what-is-not-synced", "take-back-whatever-is-there",
)  # fmt: skip

UNIQUE = {
    "restart-with-the-same-versions": (Profile.OUTAGE, "a restart uses no version of a row again"),
    "begin-clocks-anew": (Profile.OUTAGE, "stamps grow over restarts"),
    "keep-a-segment": (Profile.RESTART, "a log is no longer than what is needed"),
    "forget-what-is-kept": (Profile.RESTART, "nothing that is needed is removed with a segment"),
    "remove-segments-before-the-sync": (Profile.RESTART, "nothing that is needed is removed with a segment"),
}
"""Bugs that are found before anything is lost by them: to the profile, and to what its histories say then."""

COPIES = {"admit-copied-folders": {"no two members have one folder"}}
"""Bugs with folders that were put back, copied or moved, to what a history of restarts says then."""

BACKUPS = ("restore-the-same-cluster", "admit-members-of-other-clusters")
"""Bugs by which what is restored from backups becomes one with the cluster of these."""

CLOCKS = {"take-the-reservation-along": [83, 849, 891, 1_202, 1_437, 1_488]}
"""Bugs by which a process that comes back sets the clocks of its cluster ahead: to histories of restarts in which later writes lose by that."""

PROMISES = ("acknowledge-unsynced", "tell-tables-unsynced")
"""Bugs that a power cut shows."""

UNSEEN = {
    "log-no-ends",  # what an incarnation leaves is named, also what is empty, so little is left for its end
    "count-rows-without-majority",
    "count-backups-unsynced",
    "take-the-smallest-position",
    "restart-without-majority",
    "reserve-no-stamps",
    "believe-the-cache",
    "answer-commits-unsynced",
    "forget-what-was-read",
}
"""Bugs that no drawn history tells of yet; tests of plans, of what is handed on, and of clocks do."""


def test_every_bug_of_the_disk_has_an_expectation() -> None:
    assert {*LOG_OF, *FAILING, *RESTARTS, *UNIQUE, *COPIES, *BACKUPS, *PROMISES, *CLOCKS, *UNSEEN} == {
        *DISK_CANARIES,
        *DISK_WORLDS,
    }


@pytest.mark.rows("D-1", "D-8")
@pytest.mark.parametrize("canary", LOG_OF)
def test_a_log_that_does_not_give_the_replicas_in_memory_is_found(canary: str) -> None:
    seeds = [
        *range(60),
        1_408,
    ]  # the last one alone has a copy of a partition whose step is under way (`copy-past-steps`)
    assert_found(canary, LOG_OF[canary], seeds, WRONG_LOGS)


@pytest.mark.parametrize("canary", FAILING)
def test_a_disk_that_fails_or_is_full_is_handled_wrongly(canary: str) -> None:
    assert_found(canary, Profile.DISKS, range(60), FAILING[canary])


@pytest.mark.rows("D-8", "D-11")
@pytest.mark.parametrize("canary", UNIQUE)
def test_what_is_used_twice_or_removed_too_early_is_found_at_once(canary: str) -> None:
    profile, what = UNIQUE[canary]
    assert_found(canary, profile, range(120), {what})


@pytest.mark.rows("D-17")
@pytest.mark.parametrize("canary", COPIES)
def test_what_becomes_of_copied_folders_is_found(canary: str) -> None:
    assert_found(canary, Profile.RESTART, range(120), COPIES[canary])


@pytest.mark.rows("D-20")
@pytest.mark.parametrize("canary", BACKUPS)
def test_a_restored_cluster_that_does_not_stay_apart_is_found(canary: str) -> None:
    assert_found(canary, Profile.RESTORED, range(60), {"a restored cluster and that of the backup stay apart"})


@pytest.mark.rows("D-6", "D-7")
@pytest.mark.parametrize("canary", RESTARTS)
def test_a_restart_that_goes_wrong_is_found(canary: str) -> None:
    find(canary, [Profile.OUTAGE], range(200))


@pytest.mark.rows("DU-27")
@pytest.mark.parametrize("canary", CLOCKS)
def test_a_clock_that_a_start_sets_ahead_is_found(canary: str) -> None:
    assert_found(canary, Profile.RESTART, CLOCKS[canary], {"no acknowledged write is lost"})


@pytest.mark.rows("D-2", "D-5")
@pytest.mark.parametrize("canary", PROMISES)
def test_what_is_told_before_it_is_synced_is_found_by_a_power_cut(canary: str) -> None:
    find(canary, [Profile.OUTAGE], [*range(160), 653])
