"""What a member may be told, and the words with which nonsense is refused."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.common.config import FOLLOWING, NodeConfig
from phalanx.common.errors import InvariantViolation, UsageError
from phalanx.common.ids import (
    MemberId,
    address_of,
    host_and_port,
    incarnation_of,
    is_client,
    is_member,
    member_id,
    parse_address,
)
from phalanx.common.invariant import invariant
from phalanx.runtime.settings.config import Config


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cluster", ""), ("partition_count", 0), ("partition_count", 1_000_001), ("backup_count", 7), ("backup_count", -1),
        ("heartbeat_interval_ms", 0), ("retry_interval_ms", 0), ("join_timeout_ms", -5), ("copy_chunk_bytes", 0),
        ("migrations_per_member", 0), ("join_attempts", 0), ("max_key_bytes", 0), ("max_value_bytes", 0),
        ("heartbeat_timeout_ms", 1_000), ("failure_detector", "guess"), ("phi_threshold", 0.9), ("phi_threshold", 101),
        ("phi_threshold", float("nan")), ("phi_window", 9), ("phi_window", 10_001), ("phi_min_deviation_ms", -1),
        ("phi_acceptable_pause_ms", -1), ("phi_acceptable_pause_ms", 10_000),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_work_is_refused_by_its_name(field: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"^{field}: "):
        NodeConfig(**{field: value})


def test_the_largest_entry_fits_into_one_request() -> None:
    config = NodeConfig(max_key_bytes=100, max_value_bytes=10**9)
    assert config.max_bulk_bytes == 10**9 + 100
    assert NodeConfig(max_key_bytes=10, max_value_bytes=10).max_bulk_bytes == 16 * 1024 * 1024


@pytest.mark.parametrize("text", ["", "host", "host:", ":5701", "host:0", "host:65536", "host:-1", "a/b:5701"])
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="expected host:port, for example"):
        parse_address(text)


def test_addresses_are_normalised_and_taken_apart() -> None:
    assert parse_address(" host:05701 ") == "host:5701"
    assert host_and_port(parse_address("[::1]:5701")) == ("::1", 5701)


@given(st.text(min_size=1).filter(lambda text: "/" not in text), st.text(min_size=1))
def test_an_identity_is_its_address_and_its_incarnation(address: str, incarnation: str) -> None:
    member = member_id(address, incarnation)  # type: ignore[arg-type]
    assert address_of(member) == address
    assert incarnation_of(member) == incarnation
    assert is_member(member) != is_client(member)


def test_a_client_is_no_member() -> None:
    assert is_client("client/1")
    assert not is_member("client/1")
    assert not is_member("host:5701")
    assert address_of(MemberId("host:5701/x/y")) == "host:5701"


def test_an_invariant_tells_the_facts() -> None:
    invariant(True, "all is well")
    with pytest.raises(InvariantViolation, match=r"^tables only move on \(old=2, new='x'\)$"):
        invariant(0, "tables only move on", old=2, new="x")
    with pytest.raises(InvariantViolation, match=r"^all is well$"):
        invariant(None, "all is well")


@pytest.mark.rows("CS-73")
def test_the_membership_protocol_brought_two_settings() -> None:
    """How long a claim may take, and the old log format; the time a claim takes is held in tests/membership/test_claim.py."""
    settings = [name for name in Config.__struct_fields__ if "claim" in name or "legacy" in name]
    assert settings == ["claim_timeout_ms", "legacy_member_list_format"]
    assert (Config().claim_timeout_ms, Config().legacy_member_list_format) == (10_000, False)


def test_a_chunk_that_fits_no_frame_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^copy_chunk_bytes: 17825792 is more than the 16842752 bytes"):
        Config(copy_chunk_bytes=17 * 1024 * 1024)


@pytest.mark.parametrize("name", FOLLOWING)
def test_a_setting_that_follows_from_others_is_read_with_a_warning(name: str) -> None:
    assert NodeConfig().warnings() == []
    config = NodeConfig(**cast(dict[str, Any], {name: 5_000}), heartbeat_interval_ms=500)
    assert getattr(config, name) == 5_000
    assert [warning for warning in config.warnings() if warning.startswith(f"{name}: you do not need to set it")]
