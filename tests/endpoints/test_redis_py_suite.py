"""redis-py's own tests, from its source archive, played against a member by both versions of the protocol.

A test whose commands members refuse by name is left out (`redis_py_plugin` tells which): docs/redis.md lists what is served. What fails
for another reason stands in the table below, and nothing else does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import phalanx
from phalanx.common.ids import host_and_port
from support.source_archives import unpacked

HERE = Path(__file__).parent
FILES = (
    "test_commands.py",
    "test_pipeline.py",
    "test_encoding.py",
    "test_connection_pool.py",
    "test_multiprocessing.py",
    "test_client.py",
    "test_lock.py",
)
LEAST_PASSED = 320
"""So many pass in each version of the protocol: fewer means that commands are refused which were served."""
SETTINGS = "asks for settings that a member does not have (CONFIG GET)"
OTHER_PORT = "connects to a server of its own at Redis's usual port"
TEN_YEARS = "a time to live is at most ten years"
EXCLUDED = {
    "test_config_get": SETTINGS,
    "test_config_get_multi_params": SETTINGS,
    "test_slowlog_get": SETTINGS,
    "test_slowlog_get_limit": SETTINGS,
    "test_slowlog_length": SETTINGS,
    "test_client_setinfo": OTHER_PORT,
    "test_client_setinfo_with_driver_info": OTHER_PORT,
    "test_psync": OTHER_PORT,
    "test_expiretime": TEN_YEARS,
    "test_pexpiretime": TEN_YEARS,
    "test_readonly_invalid_cluster_state": "READONLY is answered: cluster clients ask every member",
    "test_command_list": "counts more than 300 commands",
    "test_command_getkeys": "asks for the keys of EVAL, which is refused",
}
"""Tests that fail, by name, to the reason."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return unpacked("redis", tmp_path_factory.mktemp("redis"))
    except subprocess.CalledProcessError as error:
        why = error.stderr.decode(errors="replace").strip().splitlines()[-1:]
        pytest.skip(f"the source archive of redis cannot be fetched: {' '.join(why)}")


@pytest.fixture(scope="module")
def member() -> Iterator[phalanx.MemberThread]:
    with phalanx.start_member_in_thread(phalanx.Config(port=0, serve=("redis",))) as running:
        yield running


@pytest.mark.long  # some twenty seconds of a processor for each version
@pytest.mark.timeout(600)
@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py_s_own_tests_pass(source: Path, member: phalanx.MemberThread, tmp_path: Path, protocol: int) -> None:
    host, port = host_and_port(member.address)
    report = tmp_path / "report.json"
    command = [
        sys.executable, "-m", "pytest", "-q", "--tb=native", "-p", "redis_py_plugin", "-p", "no:cacheprovider",
        "-m", "not onlycluster and not redismod", "--timeout=60", f"--redis-url=redis://{host}:{port}/9", f"--protocol={protocol}",
        *(f"tests/{name}" for name in FILES),
    ]  # fmt: skip
    # The package beside these tests is used, which is of the installed version.
    environment = os.environ | {"PYTHONPATH": str(HERE), "REDIS_PY_REPORT": str(report)}
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
    assert report.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    outcomes = json.loads(report.read_text(encoding="utf-8"))
    failed = {
        test.rpartition("::")[2].partition("[")[0]: why
        for test, (became, why) in outcomes.items()
        if became == "failed"
    }
    unexpected = {test: why for test, why in failed.items() if test not in EXCLUDED}
    assert not unexpected, "\n\n".join(f"{test}\n{why}" for test, why in unexpected.items())
    assert not set(EXCLUDED) - set(failed), "these pass, and stand in the table"
    counts = Counter(became for became, _ in outcomes.values())
    assert counts["passed"] >= LEAST_PASSED, counts
