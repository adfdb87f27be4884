"""Lettuce, which Spring asks Redis with, against real members, one of which is killed while it counts."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.processes import Cluster, wait_for
from support.roots import BUILD

HERE = Path(__file__).parent / "lettuce"
BUILT = BUILD / "clients" / "lettuce"
FETCH_TIMEOUT_S = 400
COUNTERS = [b"counter%d" % number for number in range(8)]


@pytest.fixture(scope="module")
def command() -> list[str]:
    """The command that starts the program; what it needs is fetched once."""
    if missing := [program for program in ("java", "javac", "mvn") if shutil.which(program) is None]:
        pytest.skip(f"this takes java, javac and mvn; not here: {', '.join(missing)}")
    BUILT.mkdir(parents=True, exist_ok=True)
    for file in HERE.iterdir():
        shutil.copy(file, BUILT)
    if not (BUILT / "jars").is_dir():
        run("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars")
    run("javac", "-nowarn", "-cp", "jars/*", "Counters.java")
    return ["java", "-Xmx256m", "-cp", f"{BUILT / 'jars' / '*'}{os.pathsep}{BUILT}", "Counters"]


def run(*command: str) -> None:
    made = subprocess.run(command, cwd=BUILT, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    assert made.returncode == 0, f"{' '.join(command)}: {made.stdout[-2000:]} {made.stderr[-2000:]}"


@pytest.mark.long  # what it needs is fetched from a registry, and built
@pytest.mark.timeout(600)
def test_lettuce_counts_through_a_crash(command: list[str], cluster: Cluster) -> None:
    cluster.start(3, options=("--serve=redis",))
    with cluster.client() as grid:
        counters = grid.map("redis0")

        def counted() -> list[int]:
            return [int(counters.get(key, 0)) for key in COUNTERS]

        process = subprocess.Popen(
            [*command, *(member.address for member in cluster.members)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            wait_for(lambda: min(counted()) > 5, "each counter is counted", 60)
            cluster.wait_redundant()
            cluster.kill(cluster.members[1])
            cluster.wait_views()
            before = counted()
            wait_for(
                lambda: all(now > then + 5 for now, then in zip(counted(), before, strict=True)),
                "all counters go on",
                60,
            )
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
        told = json.loads(out.strip().splitlines()[-1])
        assert told["wrong"] == []
        assert told["members"] == 3, "it has found all members by itself"
        # Lettuce sends a command again whose connection was lost, without a word: it counts at least once. One was under way at the crash.
        more = [found - acknowledged for (acknowledged, _), found in zip(told["counters"], counted(), strict=True)]
        assert min(more) >= 0
        assert sum(more) <= sum(unknown for _, unknown in told["counters"]) + 1
