"""A member tells the service manager that started it how far it is, as systemd's services of Type=notify do."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.cli.service_manager import READY, tell_service_manager


def test_a_member_says_when_it_has_joined_and_when_it_leaves(tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(30)
        command = [sys.executable, "-m", "phalanx", "member", "--port", "0"]
        member = subprocess.Popen(command, env=os.environ | {"NOTIFY_SOCKET": str(path)}, stderr=subprocess.DEVNULL)
        try:
            said = manager.recv(4096).decode()
            assert re.fullmatch(r"READY=1\nSTATUS=127\.0\.0\.1:\d+ is a member of cluster phalanx", said)
            member.send_signal(signal.SIGTERM)
            assert manager.recv(4096).decode().startswith("STOPPING=1\nSTATUS=")
            assert member.wait(30) == 0
        finally:
            member.kill()
            member.wait()


@pytest.mark.parametrize("path", ["", "relative", "/nowhere/at/all"])
def test_without_a_manager_that_listens_nothing_happens(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    tell_service_manager(READY, "x")


def test_an_abstract_socket_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"phalanx-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name)
        tell_service_manager(READY, "two\nlines")
        assert manager.recv(100) == b"READY=1\nSTATUS=two lines"
