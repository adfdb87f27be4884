"""Settings that histories are played with: what can be said, what it means, and what is refused in which words."""

import pytest

from phalanx.common.errors import UsageError
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.run import run
from phalanx_proof.sim.settings import Configuration, configurations


def one(*settings: str, profile: Profile = Profile.DEFAULT) -> Configuration:
    (found,) = configurations([profile], settings)
    return found


def test_without_settings_a_history_is_what_its_seed_draws() -> None:
    for profile in Profile:
        assert one(profile=profile).draw(7) == draw_options(7, profile)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("suspicion_timeout=3", "heartbeat_timeout_ms", 3_000),
        ("suspicion_timeout_ms=3000", "heartbeat_timeout_ms", 3_000),
        ("heartbeat_timeout=1500ms", "heartbeat_timeout_ms", 1_500),
        ("heartbeat-timeout=2.5s", "heartbeat_timeout_ms", 2_500),
        ("latency=1ms-30ms", "latency_ms", (1, 30)),
        ("latency_ms=5", "latency_ms", (5, 5)),
        ("backup_count=2", "backups", 2),
        ("lost_permille=7", "lost_permille", 7),
        ("failure_detector=deadline", "failure_detector", "deadline"),
        ("stalls=true", "stalls", True),
    ],
)
def test_a_setting_is_understood_as_people_write_it(text: str, name: str, value: object) -> None:
    made = one(text)
    assert made.settings == ((name, value),)
    assert getattr(made.draw(3), name) == value
    assert one(*made.label.split(), profile=made.profile) == made, "its label means the same"


def test_settings_that_only_members_know_reach_them() -> None:
    options = one("phi_threshold=5", "lease=8s").draw(1)
    assert options.node_config(0).phi_threshold == 5
    assert options.node_config(0).lease_ms == 8_000
    assert not run(options).violations


def test_a_sweep_is_every_combination_in_order() -> None:
    found = configurations([Profile.QUIET], ["backups=1"], ["heartbeat_timeout=8,9", "profile=quiet,failover"])
    assert [(each.profile.value, each.label) for each in found] == [
        ("quiet", "backups=1 heartbeat_timeout_ms=8000"),
        ("quiet", "backups=1 heartbeat_timeout_ms=9000"),
        ("failover", "backups=1 heartbeat_timeout_ms=8000"),
        ("failover", "backups=1 heartbeat_timeout_ms=9000"),
    ]
    assert found[2].arguments == " --profile failover --set backups=1 --set heartbeat_timeout_ms=8000"


def test_a_swept_seed_meets_the_same_faults() -> None:
    short, long = configurations([Profile.TIMEOUTS], ["longest_pause=2"], ["heartbeat_timeout=2,20"])
    assert short.draw(5).faults == long.draw(5).faults
    assert short.draw(5).heartbeat_timeout_ms == 2_000


@pytest.mark.parametrize(
    ("fixed", "swept", "told"),
    [
        (["heartbeat_timeot=3"], [], "perhaps heartbeat_timeout"),
        (["hosts=3"], [], "cannot be set"),
        (["seeds=a:1"], [], "cannot be set"),
        (["backups=many"], [], "expected int"),
        (["heartbeat_timeout=3h"], [], "expected a time such as 300ms or 2s"),
        (["latency=9-3"], [], "two times such as 1-30"),
        (["backups"], [], "expected NAME=VALUE"),
        ([], ["backups=1,,2"], "expected NAME=VALUE,VALUE"),
        (["backups=1"], ["backup_count=2"], "set twice"),
        ([], ["backups=1,1"], "names a value twice"),
        ([], ["profile=storm"], "there is no profile 'storm'"),
        (["longest_pause=3"], [], "there is no setting"),
        (["lost_permille=2000"], [], "at most 1,000"),
        (["partitions=0"], [], "at least 1"),
        ([], [f"registers={','.join(map(str, range(1, 1200)))}"], "more than 1000"),
    ],
)
def test_what_makes_no_sense_is_refused(fixed: list[str], swept: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        configurations([Profile.DEFAULT], fixed, swept)


def test_what_does_not_fit_what_a_seed_draws_is_refused_when_it_is_drawn() -> None:
    made = one("heartbeat_timeout=100ms")
    with pytest.raises(UsageError, match="heartbeat_timeout_ms: 100 must be greater than heartbeat_interval_ms"):
        made.draw(0)
