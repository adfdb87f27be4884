"""Processor time of processes below one, also of those that have ended."""

import subprocess
import sys

from benchmarks.processor import ProcessorTime

BURN = "import time\nwhile time.process_time() < 0.5: pass\n"
PARENT = (
    f"import subprocess, sys\nfor _ in range(2): subprocess.run([sys.executable, '-c', {BURN!r}])\nprint(); input()\n"
)


def test_what_children_that_have_ended_used_is_counted() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        with ProcessorTime([process.pid]) as spent:
            assert process.stdout is not None
            process.stdout.readline()
            counted = spent.seconds()
            assert spent.seconds() >= counted
        process.communicate(b"\n")
    assert counted > 0.5
