"""Settings of maps: which hold for a name, how they change, and what no map can be."""

import pytest

from phalanx.common.backups import BackupCount
from phalanx.common.config import NodeConfig
from phalanx.common.errors import UsageError
from phalanx.common.map_config import MapConfig, differences
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import MERGE_POLICIES, MapChange, MapSettings, Protection

THREE = Protection(3)


def test_a_change_of_one_aspect_leaves_the_others() -> None:
    plan = MapPlan().with_change("m", MapChange(backups=BackupCount(2)))
    plan = plan.with_change("m", MapChange(protection=THREE))
    plan = plan.with_change("m", MapChange(merge_policy="discard"))
    assert plan.of("m") == MapSettings(BackupCount(2), THREE, "discard")
    assert plan.version == 3
    assert plan.of("other") == MapSettings(BackupCount(1), Protection(), "latest-update")
    # What "m" never had of its own still follows what is usual.
    fresh = MapPlan().with_change("m", MapChange(protection=THREE)).with_change("", MapChange(backups=BackupCount(0)))
    assert fresh.of("m") == MapSettings(BackupCount(0), THREE, "latest-update")


def test_a_name_counts_before_the_longest_beginning_and_that_before_the_usual_aspect_by_aspect() -> None:
    plan = MapPlan().with_change("a*", MapChange(BackupCount(2), THREE, "discard"))
    plan = plan.with_change("ab*", MapChange(merge_policy="higher-hits"))
    plan = plan.with_change("abc", MapChange(protection=Protection()))
    assert plan.of("abc") == MapSettings(BackupCount(2), Protection(), "higher-hits")
    assert plan.of("abcd") == MapSettings(BackupCount(2), THREE, "higher-hits")
    assert plan.of("a") == MapSettings(BackupCount(2), THREE, "discard")
    assert plan.of("b") == plan.usual
    assert plan.of("a*") == MapSettings(BackupCount(2), THREE, "discard"), "a map may be called so itself"


def test_settings_that_were_looked_up_do_not_outlive_a_change() -> None:
    plan = MapPlan()
    assert plan.of("m").protection == Protection()
    assert plan.with_change("*", MapChange(protection=THREE)).of("m").protection == THREE
    assert plan.of("m").protection == Protection()
    assert plan == MapPlan(), "what was looked up is not part of the value"


@pytest.mark.rows("EL-48")
@pytest.mark.parametrize(
    ("protection", "is_on", "text"),
    [
        (Protection(), False, "off"),
        (Protection(0, True), True, "the majority of the last stable view for reads and writes"),
        (Protection(1), True, "at least 1 member for reads and writes"),
        (Protection(3, reads=False), True, "at least 3 members for writes"),
        (Protection(3, True, writes=False), True, "at least 3 members and the majority of the last stable view for reads"),
        (Protection(3, reads=False, writes=False), False, "off"),
    ],
)  # fmt: skip
def test_a_protection_says_what_it_wants(protection: Protection, is_on: bool, text: str) -> None:
    assert (protection.is_on, str(protection)) == (is_on, text)


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("m", MapChange(), "nothing to change"),
        ("m", MapChange(protection=Protection(-1)), "minimum_members: -1"),
        ("m", MapChange(protection=Protection(10_001)), "minimum_members: 10001"),
        ("m", MapChange(protection=Protection(2, reads=False, writes=False)), "neither reads nor writes"),
        ("m", MapChange(merge_policy="best"), "merge_policy: 'best' is not one of latest-update"),
        ("m", MapChange(BackupCount(7)), "backup_count: 7"),
        ("n" * 201, MapChange(BackupCount(1)), "a text of 201 characters"),
    ],
)
def test_what_no_map_can_be_is_refused(name: str, change: MapChange, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        MapPlan().with_change(name, change)


def test_a_configuration_is_what_a_cluster_begins_with() -> None:
    config = NodeConfig(
        backup_count=2,
        maps={
            "orders*": {"minimum_members": 3, "protects": "writes"},  # type: ignore[dict-item]  # as it is written
            "scratch": MapConfig(backup_count=0, majority=True, merge_policy="discard"),
            "*": MapConfig(merge_policy="put-if-absent"),
        },
    )
    plan = config.map_plan
    assert plan.version == 0
    assert plan.of("orders-1") == MapSettings(BackupCount(2), Protection(3, reads=False), "put-if-absent")
    assert plan.of("scratch") == MapSettings(BackupCount(0), Protection(0, True), "discard")
    assert plan.usual == MapSettings(BackupCount(2), Protection(), "put-if-absent")
    assert NodeConfig().map_plan == MapPlan()


@pytest.mark.parametrize(
    ("maps", "text"),
    [
        ({"m": {"minimum": 3}}, "maps: .*minimum"),
        ({"m": 3}, "maps: "),
        ({"m": {"minimum_members": "three"}}, "maps: "),
        ({"m": {"minimum_members": -3}}, "maps: 'm': minimum_members: -3"),
        ({"m": {"protects": "all", "majority": True}}, "maps: 'm': protects: 'all'"),
        ({"m": {}}, "maps: 'm': nothing"),
        (["m"], "maps: "),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(maps: object, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        NodeConfig(maps=maps)  # type: ignore[arg-type]  # that is the point


def test_a_member_can_tell_where_its_own_settings_do_not_count() -> None:
    present = MapPlan().with_change("orders", MapChange(protection=THREE))
    assert differences(MapPlan(), present) == [], "it wished for nothing"
    wished = MapPlan(0, MapSettings(BackupCount(2))).with_change("orders", MapChange(protection=Protection(2)))
    assert differences(wished, present) == [
        "*: backups 2 synchronous and 0 asynchronous, and the cluster's is 1 synchronous and 0 asynchronous",
        "orders: protection at least 2 members for reads and writes, and the cluster's is at least 3 members for reads "
        "and writes",
    ]
    assert differences(wished, wished) == []


@pytest.mark.parametrize("policy", MERGE_POLICIES)
def test_every_merge_policy_can_be_chosen(policy: str) -> None:
    assert MapPlan().with_change("m", MapChange(merge_policy=policy)).of("m").merge_policy == policy
