"""Signals that end a process in order: each program here is one of its own."""

import signal
import subprocess
import sys

import pytest

WAITS = "import time; print('ready', flush=True); time.sleep(60)"


def status_after(program: str, *numbers: signal.Signals) -> int:
    """The exit status of a program that prints `ready` and waits, and gets these signals."""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        for number in numbers:
            process.send_signal(number)
        return process.wait(30)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_they_end_a_program_with_what_shells_say(number: signal.Signals, status: int) -> None:
    program = f"from phalanx.runtime.process.signals import *\nwith ended_by_signals():\n {WAITS}"
    assert status_after(program, number) == status


def test_a_program_that_was_started_with_nohup_does_not_hear_of_a_closed_terminal() -> None:
    program = (
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        f"from phalanx.runtime.process.signals import *\nwith ended_by_signals():\n {WAITS}"
    )
    assert status_after(program, signal.SIGHUP, signal.SIGTERM) == 143


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_member_that_is_told_to_stop_while_its_modules_are_loaded_ends_as_one_that_has_not_joined(
    number: signal.Signals,
) -> None:
    program = (
        "import os, sys\n"
        "from phalanx import __main__\n"
        "class Signal:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == 'phalanx.cli.member': os.kill(os.getpid(), {int(number)})\n"
        "sys.meta_path.insert(0, Signal())\n"
        "sys.argv = ['phalanx', 'member', '--port', '0']\n"
        "print('ready', flush=True)\n"
        "__main__.main()\n"
    )
    assert status_after(program) == 0


def test_signals_that_wait_come_in_the_end() -> None:
    program = (
        "import signal\n"
        "from phalanx.runtime.process.signals import *\n"
        "with ended_by_signals():\n"
        "    with delayed_signals():\n"
        "        signal.raise_signal(signal.SIGTERM); print('ready', flush=True)\n"
        "    print('late')\n"
    )
    assert status_after(program) == 143
