"""A day of an operator, with real members, a real Prometheus and the alert rules of `deploy/`: one member of three has been
upgraded; another one crashes, an alert says so, the console says why, and `/safez` says that no further one may go; it comes back;
then the others are upgraded, each when `/safez` allows it. A program writes throughout, and nothing that was acknowledged is missing."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from phalanx.common.versions import PROTOCOL_VERSION
from support import released
from support.console_stream import Stream, viewing
from support.http_asking import ask
from support.processes import Cluster, free_port, wait_for
from support.promtool import program
from support.rolling import NEW, OLD, Load, Upgrade
from support.roots import DEPLOY

RULES = DEPLOY / "prometheus" / "phalanx.rules.yml"


class Prometheus:
    """A server that scrapes members, and judges by the rules of `deploy/`."""

    def __init__(self, port: int) -> None:
        self._port = port

    def asked(self, path: str) -> Any:
        """The data of an answer; None while it does not answer."""
        try:
            answer = ask(self._port, f"/api/v1/{path}")
        except OSError:
            return None
        return answer.json["data"] if answer.status == 200 else None

    def values(self, expression: str) -> list[float]:
        """The values of an expression now."""
        found = self.asked(f"query?query={quote(expression)}")
        return [float(each["value"][1]) for each in found["result"]] if found else []

    def firing(self, name: str) -> Any:
        """What an alert that fires says; None: it does not fire."""
        found = self.asked("alerts")
        return next(
            (a["annotations"] for a in found["alerts"] if (a["labels"]["alertname"], a["state"]) == (name, "firing")),
            None,
        )

    def rule_names(self) -> set[str]:
        found = self.asked("rules")
        return {rule["name"] for group in found["groups"] for rule in group["rules"]} if found else set()


@contextmanager
def prometheus(folder: Path, targets: list[int]) -> Iterator[Prometheus]:
    """Start it with the rules as they are shipped, but for how long a state must last: that is a second here."""
    rules = re.sub(r"\bfor: \w+", "for: 1s", RULES.read_text())
    (folder / RULES.name).write_text(rules)
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "scrape_configs": [
            {"job_name": "phalanx", "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in targets]}]}
        ],
        "rule_files": [RULES.name],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    port = free_port()
    command = [
        program("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield Prometheus(port)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def refuses_to_kill(port: int) -> str:
    """Why `/safez` says that too few hold what there is; empty: it says something else, or that all is safe."""
    answer = ask(port, "/safez")
    # The second text is that of the release from which this cluster is upgraded.
    is_about_replicas = re.search(r"replicas|no other member holds|nobody else holds", answer.text)
    return answer.text if answer.status == 503 and is_about_replicas else ""


def why_on_console(stream: Stream, address: str) -> dict[str, str]:
    """The event by which the console tells that a member was suspected."""

    def tells(name: str, data: Any) -> bool:
        return name == "events" and any(map(is_it, data["events"]))

    def is_it(event: dict[str, Any]) -> bool:
        return (event["kind"], event["about"]) == ("MemberSuspected", [address])

    told = stream.until(tells)
    return next(filter(is_it, told["events"]))


def upgrade_when_safe(upgrade: Upgrade, index: int) -> None:
    """What docs/how-to/upgrade.md says: a member is stopped when it says that this is safe, and the next one when all replicas are in place."""
    port = upgrade.http_ports[index]
    wait_for(lambda: ask(port, "/safez?graceful").status == 200, f"member {index} may be stopped")
    upgrade.change(index, NEW)
    wait_for(lambda: ask(port, "/readyz").status == 200, f"member {index} is ready")


@pytest.mark.timeout(180)
def test_an_operators_day(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A member may hang for a while. Of a crash the others hear at once: no process listens any more.
    monkeypatch.setenv("PHALANX_FAILURE_DETECTOR", "deadline")
    monkeypatch.setenv("PHALANX_HEARTBEAT_TIMEOUT_MS", "60000")
    upgrade = Upgrade(cluster, 3, http=True)
    first = upgrade.http_ports[0]
    with cluster.client() as grid:
        grid.map("flights").put_all({number: bytes(1_000) for number in range(5_000)})
    load = Load(cluster, pause_s=0.01)
    with prometheus(tmp_path, upgrade.http_ports) as watching, load.running(1):
        wait_for(lambda: watching.values("up") == [1, 1, 1], "all members are scraped")
        assert "PhalanxMemberLost" in watching.rule_names()
        upgrade_when_safe(upgrade, 0)
        wait_for(lambda: watching.values("min(phalanx_members)") == [3], "Prometheus sees three members")
        wait_for(lambda: not watching.firing("PhalanxMemberLost"), "nothing is wrong")

        # The master stays: without it the others would ask each other who is the next one, and not wait for the one that hangs.
        master = upgrade.master()
        goes, stays = 3 - master, upgrade.http_ports[master]
        lost = cluster.members[goes]
        with viewing(first) as stream:
            stream.section("story")
            # Only what the master can give to the first would make all whole again: as long as that hangs, nothing does.
            cluster.pause(cluster.members[0])
            cluster.kill(lost)
            wait_for(lambda: refuses_to_kill(stays), "another member must not be killed")
            cluster.resume(cluster.members[0])
            why = why_on_console(stream, lost.address)
        assert why["said"].startswith(f"suspects {lost.address}")
        assert why["reason"]
        assert why["meaning"]
        alert = wait_for(lambda: watching.firing("PhalanxMemberLost"), "the alert for the lost member fires")
        assert alert["summary"] == "phalanx has 2 members, and had more within the last 15 minutes"
        wait_for(lambda: watching.firing("PhalanxMemberDown"), "the alert for what does not answer fires")
        story = ask(first, f"/api/why?subject={lost.address}").json
        assert story["status"] == "removed"
        assert any(each["rule"] for each in story["decisions"])
        wait_for(
            lambda: ask(stays, "/safez").status == 200, "what the lost member held is whole again",
            seen=lambda: ask(stays, "/safez").text,
        )  # fmt: skip

        upgrade.start(goes, OLD)
        for name in ("PhalanxMemberLost", "PhalanxMemberDown"):
            wait_for(lambda: not watching.firing(name), f"{name} is resolved")  # noqa: B023  # it is called at once
        assert ask(first, "/api/members").json["cluster_version"] == released.PROTOCOL
        for index in (1, 2):
            upgrade_when_safe(upgrade, index)
        wait_for(
            lambda: all(
                ask(port, "/api/members").json["cluster_version"] == PROTOCOL_VERSION for port in upgrade.http_ports
            ),
            "the cluster version is raised",
        )
        wait_for(lambda: watching.values("up") == [1, 1, 1], "all members are scraped again")
        assert watching.values("max(phalanx_unacknowledged_losses)") == [0]
    load.check()
    with cluster.client() as grid:
        assert len(grid.map("flights")) == 5_000
    assert ask(upgrade.http_ports[2], "/safez").status == 200
