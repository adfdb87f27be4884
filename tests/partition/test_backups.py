"""How many backups there are, and who confirms: counts of maps, changed while the cluster works."""

import pytest

from phalanx.common.backups import BackupCount
from phalanx.common.config import NodeConfig
from phalanx.common.errors import ErrorCode, UsageError
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import MapChange, MapSettings, Protection
from phalanx.wire import messages as m
from phalanx.wire.table_events import MapProtected, MapSettingsDiffer, MergePolicyChanged
from support.harness import MAP, Cluster


def test_maps_have_counts_of_their_own_or_the_usual_ones() -> None:
    plan = MapPlan().with_change("deep", MapChange(BackupCount(2, 3)))
    plan = plan.with_change("shallow", MapChange(BackupCount(0)))
    assert (plan.version, plan.depth) == (2, 5)
    assert plan.of("deep").backups == BackupCount(2, 3)
    assert plan.of("shallow").backups == BackupCount(0)
    assert plan.of("any").backups == BackupCount(1, 0)
    assert plan.with_change("deep", MapChange(BackupCount(1))).depth == 1
    assert plan.with_change("", MapChange(BackupCount(6))).depth == 6


@pytest.mark.rows("DL-01")
@pytest.mark.parametrize(("synchronous", "asynchronous"), [(-1, 0), (7, 0), (0, 7), (4, 3)])
def test_counts_that_no_map_can_have_are_refused(synchronous: int, asynchronous: int) -> None:
    with pytest.raises(UsageError, match="backup_count"):
        MapPlan().with_change("m", MapChange(BackupCount(synchronous, asynchronous)))
    with pytest.raises(UsageError, match="backup_count"):
        NodeConfig(backup_count=synchronous, async_backup_count=asynchronous)
    c = Cluster("AB")
    c.assign()
    refused = c.replies[c.ask("A", m.ChangeMap, MAP, MapChange(BackupCount(synchronous, asynchronous)))]
    assert isinstance(refused, m.ErrorReply)
    assert refused.code is ErrorCode.INVALID
    assert c.table("A").maps.version == 0


def test_only_the_master_changes_the_number_of_backups_and_others_name_it() -> None:
    c = Cluster("AB")
    c.assign()
    refused = c.replies[c.ask("B", m.ChangeMap, MAP, MapChange(BackupCount(2, 0)))]
    assert isinstance(refused, m.ErrorReply)
    assert str(c.id("A")) in refused.text


def test_protection_and_merge_policy_travel_with_the_table_and_outlive_the_master() -> None:
    c = Cluster("ABC")
    c.assign()
    before = c.table("A").version
    for change in (MapChange(protection=Protection(2)), MapChange(merge_policy="discard")):
        assert c.is_done(c.ask("A", m.ChangeMap, MAP, change))
        c.settle()
    wanted = MapSettings(BackupCount(1), Protection(2), "discard")
    assert {c.table(name).maps.of(MAP) for name in "ABC"} == {wanted}
    assert c.table("C").version == before + 2
    (protected,) = c.events_of("A", MapProtected)
    assert (protected.map, protected.minimum, protected.table_version) == (MAP, 2, before + 1)
    (policy,) = c.events_of("A", MergePolicyChanged)
    assert (policy.map, policy.policy, policy.table_version) == (MAP, "discard", before + 2)
    c.crash("A")
    c.advance(5_000)
    assert c.table("B").maps.of(MAP) == wanted


def test_a_member_that_joins_with_other_settings_goes_by_the_clusters_and_says_so() -> None:
    c = Cluster("AB", maps={MAP: {"minimum_members": 2}})
    c.assign()
    c.settings["maps"] = {MAP: {"minimum_members": 1}}
    c.join("C")
    c.advance(3_000)
    assert c.table("C").maps.of(MAP).protection == Protection(2)
    (told,) = c.events_of("C", MapSettingsDiffer)
    assert told.differences == (
        f"{MAP}: protection at least 1 member for reads and writes, and the cluster's is at least 2 members for reads and "
        f"writes",
    )
    assert not c.events_of("B", MapSettingsDiffer)
