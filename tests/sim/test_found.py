"""Situations in which simulated histories once found a defect, each small, with several seeds of chance."""

import re

import msgspec
import pytest

from phalanx.common.traits import Traits
from phalanx.grid.replication.flow_control import QUIET_SIZE
from phalanx_proof.sim.cluster.world import World
from phalanx_proof.sim.fault import MASTER, Fault, FaultKind
from phalanx_proof.sim.options import HistoryOptions, Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.result import Result, repeat_command
from phalanx_proof.sim.run import run
from phalanx_proof.sim.workload.calls import Workload


def seeds(*numbers: int) -> pytest.MarkDecorator:
    """Draw chance from these seeds; those behind the first two are marked long."""
    more = [pytest.param(seed, marks=pytest.mark.long) for seed in numbers[2:]]
    return pytest.mark.parametrize("seed", [*numbers[:2], *more])


some_seeds = seeds(*range(4))


def situation(seed: int, members: int, *faults: Fault, **changes: object) -> HistoryOptions:
    """Members that start together, have a second to settle, and then meet these faults."""
    usual = {
        "members": members, "hosts": members, "start_at_ms": (0,) * members, "backups": 1, "partitions": 12,
        "latency_ms": (1, 15), "heartbeat_interval_ms": 500, "heartbeat_timeout_ms": 5_000, "claim_timeout_ms": 10_000,
        "copy_chunk_bytes": 300, "migrations_per_member": 2, "duration_ms": 6_000, "operations_per_second": 50,
        "registers": 50, "timer_slack_ms": 0, "validate_every": 1, "faults": faults,
    }  # fmt: skip
    return msgspec.structs.replace(draw_options(seed, Profile.QUIET), **(usual | changes))


def play(options: HistoryOptions) -> Result:
    result = run(options, story=True)
    told = "\n".join(f"{v.at_ms} ms: {v.what}: {v.story}" for v in result.violations)
    assert not result.violations, f"{told}\n" + "\n".join(result.story[-80:]) + repeat_command(result)
    return result


@pytest.mark.parametrize("back_after_ms", [1, 200, 330, 420, 700])
@some_seeds
def test_the_first_seed_comes_back_while_the_others_claim(seed: int, back_after_ms: int) -> None:
    """The others are in a cluster but not ready to admit: it must not form one of its own."""
    crash = Fault(3_000, FaultKind.CRASH, 0, lasts_ms=back_after_ms)
    result = play(situation(seed, 3, crash))
    assert result.rules["EL-05 the seed forms the cluster"] == 1


@some_seeds
def test_a_member_that_wants_to_leave_becomes_the_master(seed: int) -> None:
    """It asked the master that died; now it must ask itself."""
    crash, leave = Fault(3_000, FaultKind.CRASH, 0), Fault(3_050, FaultKind.LEAVE, 1)
    result = play(situation(seed, 3, crash, leave, start_at_ms=(0, 900, 1_900)))
    assert result.events["Left"] == 1


@seeds(*range(6))
def test_copies_are_overtaken_by_another_crash(seed: int) -> None:
    """A copy for a version of the partition that is over must not keep it from being copied anew."""
    first, second = Fault(3_000, FaultKind.CRASH, 2, lasts_ms=100), Fault(3_150, FaultKind.CRASH, 3, lasts_ms=100)
    third = Fault(3_500, FaultKind.CRASH, 4, lasts_ms=100)
    play(situation(seed, 6, first, second, third, backups=2, copy_chunk_bytes=64, migrations_per_member=1))


@some_seeds
def test_a_joiner_is_given_replicas_at_once(seed: int) -> None:
    """What is sent before it has joined is thrown away, and a copy that stands still begins anew only after long."""
    join = Fault(3_000, FaultKind.JOIN, 2)
    crash = Fault(3_000, FaultKind.CRASH, 1)
    result = play(situation(seed, 2, crash, join, hosts=3, latency_ms=(10, 40)))
    took_ms = [int(took) for line in result.story for took in re.findall(r"FullyReplicated.*took_ms=(\d+)", line)]
    assert took_ms
    assert max(took_ms) < 3_000


@some_seeds
def test_the_master_dies_while_the_first_copies_are_made(seed: int) -> None:
    """Tables and owners' questions reach a backup in any order: it must not drop what it is asked to follow."""
    crash = Fault(1_400 + 60 * seed, FaultKind.CRASH, MASTER)
    play(
        situation(
            seed, 6, crash, backups=3, copy_chunk_bytes=64, latency_ms=(5, 60), start_at_ms=(0, 200, 400, 500, 600, 700)
        )
    )


@some_seeds
def test_a_claimer_hears_of_a_member_that_was_replaced_long_ago(seed: int) -> None:
    """Host 2 misses the view in which host 3 came back; the claimer must not wait for the incarnation before."""
    lag = Fault(3_000, FaultKind.LAG, 0, 2, lasts_ms=3_000, nth=1_500)
    restart = Fault(3_050, FaultKind.CRASH, 3, lasts_ms=10)
    crash = Fault(3_500, FaultKind.CRASH, 0)
    result = play(situation(seed, 4, lag, restart, crash, backups=2, start_at_ms=(0, 900, 900, 2_000)))
    took_ms = [int(took) for line in result.story for took in re.findall(r"ClaimEnded.*took_ms=(\d+)", line)]
    assert took_ms
    assert max(took_ms) < 5_000


@pytest.mark.parametrize("lite", [0, 1])
@some_seeds
def test_the_last_that_holds_data_on_its_side_stays_with_lite_members_until_the_cut_is_over(
    seed: int, lite: int
) -> None:
    """It has nobody to hand over to, whoever of them is the master (PX-50). What its side alone wrote is handed in later."""
    cuts = [Fault(3_000, FaultKind.CUT, each, 2, lasts_ms=60_000) for each in (0, 1)]
    traits = tuple(Traits(lite=number == lite) for number in range(3))
    leave = Fault(5_000, FaultKind.LEAVE, 1 - lite)
    result = play(situation(seed, 3, *cuts, leave, profile=Profile.CUTS, traits=traits, start_at_ms=(0, 900, 1_000)))
    assert result.events["Left"] == 1
    assert result.events["LeaveWaits"]
    assert not result.counts["excused losses"]


@some_seeds
def test_all_that_hold_data_on_a_side_leave_together(seed: int) -> None:
    """None of them can hand over to another, and they need not go in the same moment."""
    cuts = [Fault(3_000, FaultKind.CUT, each, 2, lasts_ms=60_000) for each in (0, 1)]
    leave = [Fault(5_000, FaultKind.LEAVE, each) for each in (0, 1)]
    result = play(situation(seed, 3, *cuts, *leave, profile=Profile.CUTS, traits=(), start_at_ms=(0, 900, 1_000)))
    assert result.events["Left"] == 2
    assert result.counts["excused losses"]


@some_seeds
def test_a_claimer_never_hears_of_the_list_with_which_the_master_handed_over(seed: int) -> None:
    """Only a member that cannot answer the claimer has it: both lists have one version, and are two (A.6-20)."""
    one_way = [Fault(3_000, FaultKind.CUT_ONE_WAY, each, other, lasts_ms=60_000) for each in (0, 3) for other in (1, 2)]
    leave = Fault(3_900, FaultKind.LEAVE, 0)
    timing = {"heartbeat_interval_ms": 200, "start_at_ms": (0, 900, 1_000, 1_900), "duration_ms": 9_000}
    traits = (Traits(lite=True), Traits(), Traits(), Traits())
    result = play(situation(seed, 4, *one_way, leave, profile=Profile.CUTS, traits=traits, backups=0, **timing))
    told = "\n".join(result.story)
    handed_over = re.search(r"ViewInstalled\(view_version=(\d+), maker=h1/\w+, master=h2/", told)
    claimed = re.search(r"ViewInstalled\(view_version=(\d+), maker=h2/\w+, .*CS-66", told)
    assert handed_over
    assert claimed
    assert handed_over[1] == claimed[1]


FIRST_USE_LAST = {
    "backups": 1, "partitions": 12, "latency_ms": (20, 120), "operations_per_second": 0, "registers": 1,
    "staging": True, "duration_ms": 4_000,
}  # fmt: skip
"""Nobody uses the map before the reads at the end: these make the master assign owners, who then begin journals."""


@seeds(*range(1, 9, 2))
def test_replicas_are_judged_when_the_first_use_of_the_map_has_reached_them(seed: int) -> None:
    """The write by which an owner begins a journal may be on its way to a backup when the last read is answered."""
    play(situation(seed, 4, **FIRST_USE_LAST))


def test_a_cluster_that_does_not_come_to_rest_after_the_last_reads_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that never reaches its backup must not keep replicas from being judged without a word."""

    def unmet(world: World, workload: Workload, *, needs_majority: bool) -> list[str]:
        return ["a backup lacks a write"] if workload.final else []

    monkeypatch.setattr("phalanx_proof.sim.run.find_unmet", unmet)
    options = situation(1, 2, duration_ms=1_500, heal_within_ms=2_000)
    (violation,) = run(options).violations
    assert (violation.what, violation.story) == (
        "the cluster comes to rest after the last reads",
        "a backup lacks a write",
    )


def test_copies_of_full_journals_have_the_time_that_they_take() -> None:
    """A chunk holds one event, two go in a round trip of up to 240 ms, and one partition is copied after another."""
    drawn = draw_options(141, Profile.STAGING)
    slow = (drawn.latency_ms, drawn.copy_chunk_bytes, drawn.migrations_per_member, drawn.partitions, drawn.hosts)
    assert slow == ((20, 120), 300, 1, 26, 2)
    join = Fault(6_999, FaultKind.JOIN, 1)
    chunk_bytes = drawn.copy_chunk_bytes // QUIET_SIZE  # nobody has work then, so that chunks are larger
    result = play(msgspec.structs.replace(drawn, duration_ms=7_000, faults=(join,), copy_chunk_bytes=chunk_bytes))
    assert result.healed_after_ms > 240_000, "there was little to copy"


def test_a_side_that_gives_up_its_cluster_leaves_no_part_of_a_batch() -> None:
    """It has applied the first rows of a batch, and would apply the others in the next turn."""
    play(draw_options(1452, Profile.STAGING_CUTS))


@pytest.mark.rows("EL-63")
def test_who_was_admitted_without_hearing_of_it_gives_its_vote_to_those_that_it_comes_to() -> None:
    """1. A admits D, and is cut off before D hears of it. 2. B and C go on, and cannot know whether A's view with D became stable: they
    need D's vote. 3. D hears that A's member of that name was removed, and comes to them with another one."""
    result = play(draw_options(997_578, Profile.WINDOW))
    assert result.events["MajorityChanged"]


def test_a_voter_that_leaves_before_it_has_joined_again_takes_its_vote_along() -> None:
    """Nobody can serve what asks for a majority of which the last list names a member that never comes back."""
    assert play(draw_options(997_779, Profile.LOCKS)).faults["leave"] == 1


def test_the_program_of_a_member_that_becomes_the_only_owner_counts_once() -> None:
    """Its increments wait for the partition, it asks again when the table changes, and both tries are served."""
    assert play(draw_options(900_063, Profile.STAGING_CUTS)).faults["lag"] == 1


def test_a_cluster_goes_on_with_what_one_has_that_went_on_alone_after_a_holder_had_left() -> None:
    """A removal came back. 1. A, B and C hold a partition; A ends. 2. C ends, and has not heard yet that A is missed: its table is the
    last one of a side with the majority. 3. A joins B, and B leaves: A goes on alone. 4. All end, and come back: the cluster waited for B,
    whose folder was there and empty. 5. An operator lets it go on. A merged what it had held when it ended first."""
    assert play(draw_options(492, Profile.OUTAGE)).events["ClusterRestarted"]


@pytest.mark.rows("DU-30")
def test_what_a_holder_handed_over_without_the_majority_does_not_begin_empty_there() -> None:
    """1. A and B are all that a stable list has, and B ends. 2. C, D and E join A, which hands over to them. 3. All stop, and come back: A
    has its folder, and nothing of what it gave away in it. It was taken for one that had never heard of its partitions."""
    assert play(draw_options(1608, Profile.OUTAGE)).events["LastMembersLeave"]


def test_a_lite_member_that_gets_a_folder_with_data_brings_it() -> None:
    """The folders of two hosts are exchanged, and a lite member runs on one of them: it owned what it had read."""
    assert play(draw_options(352, Profile.RESTART)).events["PartitionsWoken"]


@pytest.mark.rows("DU-24")
def test_a_cluster_that_a_member_without_its_folder_founds_says_nothing_of_the_first_one() -> None:
    """1. The folder of A, the first seed, is emptied, and the others stop before A has joined. 2. A founds a cluster, and serves it. 3. The
    others come back, are refused by A, go on by themselves, and A joins them."""
    assert play(draw_options(361, Profile.RESTART)).events["JoinRequestRefused"]


@pytest.mark.rows("DU-30")
def test_what_a_member_holds_that_was_never_told_so_is_not_copied_anew() -> None:
    """1. A and B come back, and A, the master, gives both what they have in their folders. 2. A crashes before B hears of it. 3. It comes
    back: its table names an incarnation of B that no folder names."""
    assert play(draw_options(440, Profile.OUTAGE)).events["ClusterRestarted"]


@pytest.mark.rows("DU-30")
def test_who_took_over_from_a_holder_that_left_goes_on_and_journals_with_it() -> None:
    """1. A crashes, and B goes on without the majority. 2. B hands all over to C, and leaves in good order. 3. All end, and come back: the
    cluster waited for B, which was there, and whose folder was empty. An operator let it go on, with what A had had."""
    assert "accepted restarts" not in play(draw_options(180, Profile.RESTART)).faults


@pytest.mark.long
@pytest.mark.parametrize(
    ("seed", "profile"),
    [
        (221, Profile.DISKS),  # the only member with a working disk does not leave
        (132, Profile.RESTART),  # a folder was cut where it was damaged, and its process ended before it joined
        (211, Profile.RESTART),  # there was damage where nobody reads, and later the disk failed
        (229, Profile.RESTART),  # replicas waited for a merge when the length of logs was judged
        (458, Profile.RESTART),  # as 211, the other way round
        (523, Profile.RESTART),  # one that has a folder that was moved leaves with its vote
        (551, Profile.RESTART),  # a folder was copied, and its two members never met
        (581, Profile.RESTART),  # all of a log was in the sector that the disk forgot
        (7, Profile.RESTART),  # a member whose disk had failed left while all keys were read at last
        (1206, Profile.RESTART),  # no operator gave up a holder whose folder was cut where it was damaged
        (3864, Profile.OUTAGE),  # as 627: the folder had not heard of its partitions
        (627, Profile.RESTART),  # no operator started the process whose folder an empty partition waited for
        (2387, Profile.RESTART),  # no operator emptied a copy of a folder that was damaged, too
        (3475, Profile.OUTAGE),  # an operator accepted a view, and the side that had the majority came back later
        (3621, Profile.OUTAGE),  # as 3475, and the other side was there before
        (3858, Profile.OUTAGE),  # all keys were read at last while the network was in two parts
        (340, Profile.OUTAGE),  # a member had yet to hear that another one, behind a cut, had gone on alone
        # A row named a member behind a cut until the majority knew that it was gone.
        pytest.param(362, Profile.OUTAGE, marks=pytest.mark.long),
    ],
)
def test_what_a_checker_took_for_a_violation_is_none(seed: int, profile: Profile) -> None:
    play(draw_options(seed, profile))


@pytest.mark.rows("DU-24")
def test_a_master_that_has_left_does_not_go_on_with_votes_that_it_gave_away() -> None:
    """1. B, C, D and E leave, and A counts their votes. 2. A leaves F with all that is left, at once. 3. F stops. 4. A starts again: it took
    the votes from its folder, and went on alone."""
    assert play(draw_options(654, Profile.RESTART)).events["ClusterRestarted"]


@pytest.mark.rows("DU-26", "DU-33")
def test_who_came_to_a_waiting_cluster_has_no_settings_of_its_own_when_that_goes_on() -> None:
    """1. A waits for B. C and D, which are new, join it, and A stops. 2. C leads D, and both have read nothing. 3. A and B come back: C had
    given D the settings that it was started with, in the version of those in the folders."""
    assert play(draw_options(429, Profile.OUTAGE)).events["ClusterRestarted"]


@pytest.mark.rows("DU-32")
def test_a_member_leaves_while_a_division_waits_for_dormant_partitions() -> None:
    """1. The partitions are to be divided, and B ends: some wait for its folder. 2. A, the master, stops. 3. Nothing moved before the
    division, so A stayed, and B could not come back, because A was to leave."""
    assert play(draw_options(3663, Profile.OUTAGE)).events["PartitionsDormant"]


@pytest.mark.rows("DU-32")
def test_partitions_are_not_divided_by_two_numbers() -> None:
    """1. A, the master, divides 7 partitions into 14, and ends before B hears of it. 2. B, without the majority, is asked to divide them into
    21. 3. All lose power. What one had did not fit what the other one had."""
    assert play(draw_options(3386, Profile.OUTAGE)).faults["divide"]


@pytest.mark.rows("EL-62")
def test_a_larger_side_joins_one_that_has_divided_its_partitions() -> None:
    """1. A divides the partitions, and leaves B. 2. Both are started again, and cannot find each other: A waits with others, and an operator
    accepts them, by mistake. 3. They meet: B was to join them, and could not, because they had fewer partitions."""
    assert play(draw_options(3761, Profile.OUTAGE)).events["PartitionsDivided"]


@pytest.mark.rows("DU-60")
def test_a_member_whose_disk_has_failed_and_that_has_left_does_not_vote_again() -> None:
    """1. A's disk fails, and it takes part in a list without D, E and F. 2. A leaves B and C. 3. A's folder, which knows nothing of that, is
    repaired, and its member comes to D, E and F: with its vote they had the majority of the list before, as B and C had that of theirs."""
    assert play(draw_options(1063, Profile.RESTART)).faults["disk-fails"]


@pytest.mark.rows("DU-26")
def test_a_restart_uses_no_version_of_a_side_of_which_nobody_is_back() -> None:
    """1. A and B are cut off, and by A's table, which is of no majority, a partition goes on at B. 2. All end, and the others come back."""
    assert play(draw_options(334, Profile.POWER_CUTS)).events["PartitionsWoken"]


@pytest.mark.rows("DU-33")
def test_who_stays_when_the_only_one_with_data_leaves_a_cluster_that_waits_begins_nothing_empty() -> None:
    """1. A, which has everything in its folder, waits for others with B, which has read nothing. 2. A leaves for good, and B had its vote."""
    assert play(draw_options(3558, Profile.OUTAGE)).events["RestartWaits"]


@pytest.mark.rows("DU-29")
@pytest.mark.parametrize(("seed", "profile"), [(3300, Profile.OUTAGE), (1013, Profile.RESTART)])
def test_a_cluster_waits_for_nobody_that_is_here(seed: int, profile: Profile) -> None:
    """1. A, with data, admits B and C, and ends before they have a table. 2. A comes back, and the three waited for B and C. 3. A ends
    again: B and C, which are the majority, began everything empty."""
    assert play(draw_options(seed, profile)).events["ClusterRestarted"]


@pytest.mark.rows("DU-38")
def test_members_go_where_one_stops_and_another_leaves_that_hold_the_same() -> None:
    """1. A is to be rid of all it holds, and B stops, which keeps what it holds. 2. Both hold a partition: B was to give that up, too, at
    once with all that it had, and A waited for that."""
    assert play(draw_options(736, Profile.RESTART)).events["LeaveStarted"]


@pytest.mark.rows("DU-27")
@pytest.mark.parametrize(
    ("seed", "profile"),
    [
        (83, Profile.RESTART),
        (891, Profile.RESTART),
        *(
            pytest.param(seed, Profile.RESTART, marks=pytest.mark.long)
            for seed in (167, 233, 849, 1169, 1202, 1360, 1437, 1458, 1488)
        ),
        pytest.param(3322, Profile.OUTAGE, marks=pytest.mark.long),
    ],
)
def test_what_a_side_wrote_before_does_not_win_because_a_member_started_again(seed: int, profile: Profile) -> None:
    """1. A loses power, starts again within seconds, and joins B, which runs: the clocks of both were up to 20 s ahead from then on. 2. A cut
    parts them from C. 3. What they had written before won over what was written later at C."""
    play(draw_options(seed, profile))


@pytest.mark.rows("DU-32")
def test_a_lost_folder_is_not_back_because_another_one_is_at_its_address() -> None:
    """1. A and B hold a partition, and A ends. 2. B acknowledges writes, and A is back and has not got them yet. 3. B's folder is lost. A new
    one at its address said nothing of the partition: it went on with what A had had, and nobody was asked or told."""
    assert play(draw_options(2035, Profile.RESTART)).events["HoldersGivenUp"]


def test_what_a_side_counts_alone_is_not_awaited_of_the_other_side() -> None:
    """1. All three are back at once, and C has moved a replica to B when A is cut off. 2. A, alone, counts on, and so do B and C, with the
    majority. 3. A joins them, and of two values of a counter the later one stays."""
    assert play(draw_options(5532, Profile.OUTAGE)).events["MergeConflicts"]


@pytest.mark.rows("DU-30")
@pytest.mark.parametrize(("seed", "profile"), [(44, Profile.RESTORED), (22, Profile.OUTAGE)])
def test_what_the_last_ones_have_that_leave_counts_although_their_votes_are_handed_over(
    seed: int, profile: Profile
) -> None:
    """A removal was undone. 1. Two of four crash. Of the others one is to leave and one to stop: what they hold stays in their folders. 2. All
    come back. A vote that was handed over was taken for one that a failed disk had cost, and the replicas for old ones."""
    assert play(draw_options(seed, profile)).events["LastMembersLeave"]


@pytest.mark.rows("DU-29")
def test_a_partition_whose_owner_had_not_heard_of_it_begins_at_its_backup() -> None:
    """The power fails when only the master has the first table: its owner's folder knew of no cluster, and the partition waited for it."""
    assert play(draw_options(106, Profile.RESTORED)).faults["accepted restarts"] == 1


def test_what_was_kept_is_there_for_a_backup_to_which_no_stream_has_begun() -> None:
    """1. A keeps what B lacks, which is away. 2. C gets a copy, commits it and crashes, so A's stream to it is over. 3. The table names C,
    because a removal changes no row before the majority knows of it: A kept nothing any more, and began its log anew behind what it still had."""
    assert play(draw_options(230, Profile.RESTART)).events["PromotionWaits"]


def test_who_is_killed_before_its_first_table_comes_back_with_what_it_has_followed() -> None:
    """Its folder does not say of how many partitions its replicas are."""
    play(draw_options(722, Profile.RESTART))
