"""What a member's log tells of its decisions: each in words that say what happened to whom, and why."""

import logging
import re
from pathlib import Path

import pytest

from phalanx import wire
from phalanx.common.ids import Address, member_id
from phalanx.reports.event_words import in_words, level_of
from phalanx.runtime.logs.event_log import EventLog
from phalanx.runtime.settings.config import Config
from phalanx.wire.event import Either, Event
from phalanx.wire.events import EVENT_KINDS, MODULES
from phalanx.wire.join_events import LeaveStarted, LiteChanged, LiteChangeStarted, MemberAdmitted
from phalanx.wire.log_events import EventsLost
from phalanx.wire.merge_events import KeptDropped
from phalanx.wire.suspicion_events import ClaimEnded, ClaimStarted, EvacuationEnded, LinksReported, SuspicionRemoved
from phalanx.wire.table_events import (
    BackupsChanged,
    ContentReplaced,
    FullyReplicated,
    MapProtected,
    MigrationsPlanned,
    PartitionLost,
    ProtectionChanged,
    RebalancingProgress,
    TableInstalled,
    TableSearchEnded,
)
from phalanx.wire.view_events import MajorityChanged, MemberRemoved, PromotionWaits

A, B = (member_id(Address(f"10.0.0.{number}:5701"), "1") for number in (1, 2))


@pytest.mark.parametrize(
    ("event", "level", "said"),
    [
        (MemberAdmitted(A, 3, ()), logging.INFO, "admits 10.0.0.1:5701 (member list 3)"),
        (
            MemberAdmitted(A, 3, (B,)),
            logging.INFO,
            "admits 10.0.0.1:5701 instead of 10.0.0.2:5701 (member list 3)",
        ),
        (MemberRemoved(B, 4, "it left", "r"), logging.INFO, "removes 10.0.0.2:5701 (member list 4): it left"),
        (
            TableSearchEnded(B, 12, (3, 4), (5,)),
            logging.INFO,
            "continues as the master with partition table ver 12 of 10.0.0.2:5701; 2 migrations under way are rolled back; "
            "1 partition is taken as its replicas have it",
        ),
        (
            ContentReplaced("m", "j1", 9),
            logging.INFO,
            "has replaced the content of map m by that of job j1 (partition table ver 9)",
        ),
        (
            BackupsChanged("m", 1, 2, 9),
            logging.INFO,
            "gives map m 1 synchronous and 2 asynchronous backups (partition table ver 9)",
        ),
        (
            MigrationsPlanned(9, 5, 7, 2, "members left"),
            logging.INFO,
            "plans 7 migrations of 5 partitions; 2 lack replicas: members left",
        ),
        (
            ClaimStarted(1, 2, (A, B), "r"),
            logging.WARNING,
            "claims to be the master: it suspects 10.0.0.1:5701, 10.0.0.2:5701",
        ),
        (
            ClaimEnded(1, "this member is the master", (B,), 7, "r"),
            logging.INFO,
            "has claimed to be the master for 7 ms: this member is the master, without 10.0.0.2:5701",
        ),
        (LeaveStarted(A, 90), logging.INFO, "lets 10.0.0.1:5701 leave, which has 90 replicas to hand over"),
        (
            LiteChangeStarted(A, 9),
            logging.INFO,
            "lets 10.0.0.1:5701 hand over 9 replicas, to hold no data any more",
        ),
        (
            LiteChanged(B, True, 7),
            logging.INFO,
            "says that 10.0.0.2:5701 holds no data any more (member list 7)",
        ),
        (
            LiteChanged(B, False, 8),
            logging.INFO,
            "says that 10.0.0.2:5701 can hold data from now on (member list 8)",
        ),
        (
            FullyReplicated(9, 1234),
            logging.INFO,
            "every partition has all its replicas again, after 1.2 s (table ver 9)",
        ),
        (
            RebalancingProgress(9, 61, 180, 50_000, 10_485_760, 5_000, 9_754),
            logging.INFO,
            "has moved 61 of 180 partitions: 50,000 entries, 10.0 MiB, in 5.0 s; about 9.8 s left",
        ),
        (
            RebalancingProgress(9, 180, 180, 1, 1_024, 7_040, 0),
            logging.INFO,
            "has moved 180 of 180 partitions: 1 entry, 0.0 MiB, in 7.0 s",
        ),
    ],
)
def test_decisions_are_told_in_words(event: Event, level: int, said: str) -> None:
    assert (level_of(event), in_words(event)) == (level, said)


def test_a_new_cluster_is_not_told_that_its_master_has_found_nothing() -> None:
    assert level_of(TableSearchEnded(A, 0)) == logging.DEBUG


def test_each_partition_that_is_lost_is_told_only_for_those_who_look_closely() -> None:
    """Their number is a line of its own, and an error."""
    assert level_of(PartitionLost(1, (A,), 2, 9)) == logging.DEBUG


def test_maps_without_numbers_of_their_own_are_called_so() -> None:
    assert "maps without numbers of their own 0 synchronous" in in_words(BackupsChanged("", 0, 0, 9))


def test_every_event_has_a_notice_of_its_own() -> None:
    """A new kind could not be put into words, and its line would be missing in logs."""
    assert len(EVENT_KINDS) > 50
    assert [name for name, kind in EVENT_KINDS.items() if "notice" not in vars(kind)] == []


def test_no_module_of_events_is_left_out() -> None:
    files = {path.stem for path in Path(wire.__path__[0]).glob("*_events.py")}
    assert {module.__name__.rpartition(".")[2] for module in MODULES} == files


@pytest.mark.parametrize("kind", EVENT_KINDS.values())
def test_a_notice_names_fields_that_its_event_has(kind: type[Event]) -> None:
    """A mistyped field would make the sentence disappear without a word: the event would be told field by field."""
    notice = kind.notice
    notices = (notice.true, notice.false) if isinstance(notice, Either) else (notice,)
    decides = {notice.field} if isinstance(notice, Either) else set()
    named = {field for each in notices for field in re.findall(r"{(\w+)", each.sentence + each.log)} | decides
    known = {"this", "in_view", "in_table", "which", "wish", "of_what", *kind.__struct_fields__}
    assert named <= known
    assert not any("{this" in each.sentence for each in notices), "only a line of the log has it"


@pytest.mark.parametrize(
    ("event", "level", "said"),
    [
        (
            EvacuationEnded((B,), (), 1500, 9),
            logging.INFO,
            "has let others take all that only 10.0.0.2:5701 had, after 1.5 s",
        ),
        (
            EvacuationEnded((B,), tuple(range(30)), 1500, 9),
            logging.WARNING,
            "ends the move of what only others have; 10.0.0.2:5701 still had 30 partitions after 1.5 s: "
            f"{', '.join(map(str, range(20)))}, ...",
        ),
        (LinksReported(A, (), (B,), "r"), logging.INFO, "hears that 10.0.0.1:5701 reaches everybody again"),
        (LinksReported(A, (B,), (), "r"), logging.WARNING, "hears that 10.0.0.1:5701 cannot reach 10.0.0.2:5701"),
        (MajorityChanged(4, True, "", "r"), logging.INFO, "has the majority again (member list 4)"),
        (
            MajorityChanged(4, False, "1 of 3", "r"),
            logging.WARNING,
            "does not have the majority (member list 4): 1 of 3",
        ),
        (
            PromotionWaits((A,), 2500, "r"),
            logging.INFO,
            "does not give the data of 10.0.0.1:5701 to others yet: it waits for 2.5 s, until no lease of theirs runs any more",
        ),
        (
            MapProtected("*", 2, True, False, True, 9),
            logging.INFO,
            "lets all other maps need at least 2 members and the majority of the last stable view for writes "
            "(partition table ver 9)",
        ),
        (
            MapProtected("m", 0, False, True, True, 9),
            logging.INFO,
            "no longer protects map m (partition table ver 9)",
        ),
        (
            ProtectionChanged("m", True, 2, False, False, True, 1, 3, "it needs 2"),
            logging.WARNING,
            "refuses writes of map m from now on; 1 member that holds data is here (member list 3): it needs 2",
        ),
        (SuspicionRemoved(A, "r"), logging.INFO, "no longer suspects 10.0.0.1:5701"),
        (
            KeptDropped((A,), 1, 2000),
            logging.ERROR,
            "leaves with 2,000 entries of 1 partition that it kept, and that no owner has taken: they are lost",
        ),
        (
            EventsLost(1, 3000, "the disk is full"),
            logging.WARNING,
            "has a gap in its event log: 1 event is missing, the first of 3.0 s ago: the disk is full",
        ),
    ],
)
def test_what_depends_on_a_field_is_told_as_it_is(event: Event, level: int, said: str) -> None:
    assert (level_of(event), in_words(event)) == (level, said)


def test_the_same_is_told_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    log = EventLog(Config(cluster="test"))
    log.begin(A)
    with caplog.at_level(logging.INFO, "phalanx.member"):
        for _ in range(5):
            log.record(SuspicionRemoved(B, "r"))
            log.record(LeaveStarted(B, 3))
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    assert told == [
        "10.0.0.1:5701 no longer suspects 10.0.0.2:5701",
        "10.0.0.1:5701 lets 10.0.0.2:5701 leave, which has 3 replicas to hand over",
    ]


def test_no_field_of_an_event_takes_the_place_of_what_every_line_has() -> None:
    """A line says who wrote it, where and when, beside the event's own fields."""
    of_every_line = {"at", "cluster", "member", "address", "schema", "event"}
    kinds = EVENT_KINDS.values()
    assert len(kinds) > 50
    assert {kind.__name__: taken for kind in kinds if (taken := of_every_line & set(kind.__struct_fields__))} == {}


def test_no_words_are_made_of_what_nobody_reads(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member records several events for each partition that moves."""
    made: list[Event] = []

    def counted(event: Event) -> str:
        made.append(event)
        return in_words(event)

    monkeypatch.setattr("phalanx.runtime.logs.event_log.in_words", counted)
    log = EventLog(Config(cluster="test"))
    log.begin(A)
    for level in (logging.INFO, logging.DEBUG):
        with caplog.at_level(level, "phalanx.member"):
            log.record(TableInstalled(4, 1, 2))
    assert len(made) == len(caplog.records) == 1
