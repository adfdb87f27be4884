"""The alert rules and the dashboard ask for figures that members give, and the alerts fire when they should."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from support.http_asking import ask, listening
from support.promtool import promtool
from support.roots import DEPLOY

RULES = DEPLOY / "prometheus" / "phalanx.rules.yml"
NAME = re.compile(r"\b(?:phalanx|process)_[a-z0-9_]+")


def run(*arguments: str, cwd: Path = RULES.parent) -> subprocess.CompletedProcess[str]:
    # It ends before its garbage matters, and collecting it is a third of its work.
    lavish = os.environ | {"GOGC": "off"}
    return subprocess.run([promtool(), *arguments], cwd=cwd, env=lavish, capture_output=True, text=True, check=False)


def test_the_rules_fire_when_they_should() -> None:
    for arguments in (
        ("check", "rules", RULES.name),
        ("test", "rules", "phalanx.test.yml"),
        ("check", "config", "--syntax-only", "prometheus.yml"),
    ):
        done = run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max by (job) (phalanx_unacknowledged_losses) > 0", "max by (job) (phalanx_unacknowledged_losses) > 1"),
        ("max_over_time(phalanx_members[15m])", "max_over_time(phalanx_members[5s])"),
        ("increase(phalanx_members_lost_total[15m])) == 0", "increase(phalanx_members_lost_total[15m])) >= 0"),
        ("increase(phalanx_members_lost_total[15m])) == 0", "increase(phalanx_members_lost_total[15m])) > 0"),
        ("sum by (job) (phalanx_master) != 1", "sum by (job) (phalanx_master) != 2"),
        ("> 0.9 * phalanx_memory_limit_bytes and phalanx_memory_limit_bytes > 0", "> 0.9 * phalanx_memory_limit_bytes"),
        ("not_owner|", ""),
        ("phalanx_event_log_failing == 1", "phalanx_event_log_failing == 0"),
        ("expr: phalanx_event_log_failing == 1\n        for: 1m", "expr: phalanx_event_log_failing == 1"),
        ("predict_linear(phalanx_disk_free_bytes[6h], 24 * 3600)", "predict_linear(phalanx_disk_free_bytes[6h], 3600)"),
        ("sync_duration_seconds_bucket[5m]))) > 0.1", "sync_duration_seconds_bucket[5m]))) > 1"),
        ('phalanx_disk_state{state="ok"} == 0', 'phalanx_disk_state{state="slow"} == 1'),
    ],
)
def test_a_broken_rule_is_found(old: str, new: str, tmp_path: Path) -> None:
    text = RULES.read_text()
    assert text.count(old) == 1
    (tmp_path / RULES.name).write_text(text.replace(old, new))
    (tmp_path / "phalanx.test.yml").write_text((RULES.parent / "phalanx.test.yml").read_text())
    assert run("test", "rules", "phalanx.test.yml", cwd=tmp_path).returncode != 0


def test_rules_and_dashboard_ask_for_figures_that_there_are(tmp_path: Path) -> None:
    with listening(data_dir=str(tmp_path / "data"), data_dir_is_lasting=True) as member:
        member.map("flights")["UA1"] = "EWR"
        text = ask(member.http_port, "/metrics").text
    heads = [line.split() for line in text.splitlines() if line.startswith("# TYPE")]
    given = {name for _, _, name, _ in heads}
    given |= {
        f"{name}{end}" for _, _, name, kind in heads if kind == "histogram" for end in ("_bucket", "_count", "_sum")
    }
    dashboard = (DEPLOY / "grafana" / "phalanx.json").read_text()
    for asking in (RULES.read_text(), dashboard, (RULES.parent / "phalanx.test.yml").read_text()):
        asked = set(NAME.findall(asking))
        assert len(asked) > 5
        assert asked <= given


def test_all_expressions_of_the_dashboard_can_be_read(tmp_path: Path) -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "phalanx.json").read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(expressions) > 20
    rules = [
        {"record": f"panel:{number}", "expr": each.replace("$job", "phalanx").replace("$__rate_interval", "1m")}
        for number, each in enumerate(expressions)
    ]
    (tmp_path / "panels.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = run("check", "rules", "panels.yml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
