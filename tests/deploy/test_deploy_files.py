"""What `deploy/` says is true of this program: commands, options, settings, ports, times and users that it names exist and agree.

Neither Docker nor Kubernetes reads the files here; `test_pods.py` runs what they start. Manifests are checked by Kubernetes' schemas.
"""

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import typer.testing
import yaml  # type: ignore[import-untyped]  # it has no types

import phalanx
from phalanx.cli.main import app
from phalanx.cli.member_process import LEAVE_WITHIN_S
from phalanx.common.seeds import DEFAULT_PORT, parse_members
from phalanx.runtime.settings.load_config import PREFIX, read_environment
from support.http_asking import ask, listening
from support.pods import container, stateful_set
from support.roots import DEPLOY

SECRETS = {"PHALANX_SECRET_FILE", "PHALANX_HTTP_TOKEN_FILE"}
DOCKERFILE = (DEPLOY / "docker" / "Dockerfile").read_text()
HTTP_PORT = 8701
USER = 10001


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text()))


def unit() -> configparser.ConfigParser:
    class Several(dict[str, str]):
        """Keeps all values of a key that is there several times."""

        def __setitem__(self, key: str, value: Any) -> None:
            if isinstance(value, list) and key in self:
                value = [*self[key], *value]
            super().__setitem__(key, value)

    parser = configparser.ConfigParser(strict=False, interpolation=None, dict_type=Several)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # as configparser's documentation says
    parser.read_string((DEPLOY / "systemd" / "phalanx.service").read_text())
    return parser


def check_command(words: list[str]) -> None:
    """The command is there, and has the options that are given."""
    assert words[0] == "phalanx"
    done = typer.testing.CliRunner().invoke(app, [words[1], "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert done.exit_code == 0, done.output
    for option in words[2:]:
        if option.startswith("--"):
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", done.output), f"{words[1]} has no option {option}"


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    folder = DEPLOY / "kubernetes"
    for name in yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]:
        for each in yaml.safe_load_all((folder / name).read_text()):
            yield f"{each['kind']} {each['metadata']['name']}", each


def refused_fields(manifest: dict[str, Any], version: str) -> list[str]:
    """Return what Kubernetes of that version refuses of a manifest, by its published schemas (Apache License 2.0; only what the
    kinds here need, without descriptions)."""
    schemas = json.loads((Path(__file__).parent / f"kubernetes-{version}.json").read_text())
    group, _, number = manifest["apiVersion"].rpartition("/")
    name = f"io.k8s.api.{group or 'core'}.{number}.{manifest['kind']}"
    checker = jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", **schemas})
    return [f"{error.json_path}: {error.message}" for error in checker.iter_errors(manifest)]


@pytest.mark.parametrize("version", ["1.27", "1.37"])
def test_manifests_are_what_kubernetes_takes(version: str) -> None:
    found = dict(manifests())
    assert {name.partition(" ")[0] for name in found} == {"StatefulSet", "Service", "PodDisruptionBudget"}
    for name, manifest in found.items():
        assert refused_fields(manifest, version) == [], name


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (("spec", "serviceNaem"), "phalanx", "'serviceNaem' was unexpected"),
        (("spec", "replicas"), "three", "'three' is not of type"),
        (("spec", "template", "spec", "terminationGracePeriod"), 180, "'terminationGracePeriod' was unexpected"),
    ],
)
def test_a_wrong_manifest_is_found(place: tuple[str, ...], value: Any, told: str) -> None:
    manifest = json.loads(json.dumps(stateful_set()))
    *path, last = place
    inner = manifest
    for each in path:
        inner = inner[each]
    inner[last] = value
    assert [told in each for each in refused_fields(manifest, "1.37")] == [True]


def test_the_environment_of_pods_is_of_settings_that_fit_together() -> None:
    environ = {
        each["name"]: each.get("value", "10.0.0.7" if each["name"] == "PHALANX_ADVERTISE" else "node-1")
        for each in container()["env"]
    }
    settings = read_environment(environ)
    assert parse_members(settings["seeds"]).seeds
    config = msgspec.convert(settings, phalanx.Config)
    assert config.has_seed_sources
    assert config.join_attempts * config.join_timeout_ms > 60_000, "longer than name servers remember a missing name"
    assert (config.ports, config.http_ports) == (range(DEFAULT_PORT, DEFAULT_PORT + 1), range(HTTP_PORT, HTTP_PORT + 1))


def test_the_environment_of_compose_is_of_settings_that_fit_together() -> None:
    members = {name: each for name, each in compose()["services"].items() if "PHALANX_ADVERTISE" in each["environment"]}
    assert len(members) == 3
    hosts = [
        address.partition(":")[0] for address in next(iter(members.values()))["environment"]["PHALANX_SEEDS"].split(",")
    ]
    for name, each in members.items():
        config = msgspec.convert(read_environment(each["environment"]), phalanx.Config)
        assert config.advertise == name
        assert name in hosts
        assert each["stop_grace_period"] == "90s"
        assert int(each["stop_grace_period"][:-1]) > LEAVE_WITHIN_S
        check_command(["phalanx", *each["command"]])
        assert each["mem_limit"] == "${MEMBER_MEMORY:-2g}"
    assert list(members) == hosts
    job = compose()["services"]["job"]
    assert set(job["depends_on"]) == set(members)
    assert parse_members(job["environment"]["MEMBERS"]).seeds == [f"{host}:{DEFAULT_PORT}" for host in hosts]


def test_each_member_of_compose_keeps_its_data_on_a_volume_of_its_own() -> None:
    found = compose()
    members = [each for each in found["services"].values() if "PHALANX_ADVERTISE" in each["environment"]]
    mounts = [each["volumes"] for each in members]
    names, places = zip(*[volume.split(":") for volumes in mounts for volume in volumes], strict=True)
    assert sorted(names) == sorted(found["volumes"])
    [place] = set(places)
    assert f"/{USER} {place}" in DOCKERFILE.replace(f"--owner {USER} --group {USER} ", f"/{USER} "), (
        "the user can write there"
    )
    for each in members:
        assert Path(each["environment"]["PHALANX_DATA_DIR"]).parent == Path(place)


def with_volumes() -> dict[str, Any]:
    """Return the StatefulSet with the component for volumes, as kustomize merges them: lists of things with names by name."""
    text = (DEPLOY / "kubernetes" / "components" / "volumes" / "kustomization.yaml").read_text()
    [patch] = yaml.safe_load(text)["patches"]

    def merge(one: Any, other: Any) -> Any:
        if isinstance(one, dict) and isinstance(other, dict):
            return one | {key: merge(one.get(key), value) for key, value in other.items()}
        if isinstance(one, list) and all(isinstance(each, dict) and "name" in each for each in [*one, *other]):
            merged = {each["name"]: each for each in one}
            return list((merged | {each["name"]: merge(merged.get(each["name"]), each) for each in other}).values())
        return other

    return dict(merge(stateful_set(), yaml.safe_load(patch["patch"])))


@pytest.mark.parametrize("version", ["1.27", "1.37"])
def test_pods_can_have_volumes_that_outlive_them(version: str) -> None:
    found = with_volumes()
    assert refused_fields(found, version) == []
    assert found["spec"]["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    [claim] = found["spec"]["volumeClaimTemplates"]
    [member] = found["spec"]["template"]["spec"]["containers"]
    assert member.keys() == container().keys()
    place = next(each["mountPath"] for each in member["volumeMounts"] if each["name"] == claim["metadata"]["name"])
    environ = {each["name"]: each.get("value", "10.0.0.7") for each in member["env"]}
    assert container()["env"] == member["env"][:-1]
    assert Path(environ["PHALANX_DATA_DIR"]).parent == Path(place), "the root of a volume has files of its own"
    pod = found["spec"]["template"]["spec"]
    assert pod["securityContext"]["fsGroup"] == USER, "the member can write to its volume"
    assert pod["volumes"] == stateful_set()["spec"]["template"]["spec"]["volumes"]


def test_who_reads_its_log_back_is_not_taken_for_dead() -> None:
    """The probe at the start asks what is answered meanwhile (tests/http/test_probes.py); systemd waits for minutes."""
    assert container()["startupProbe"]["httpGet"]["path"] == "/livez"
    assert int(unit()["Service"]["TimeoutStartSec"]) >= 600
    assert unit()["Service"]["StateDirectory"] == "phalanx"


def test_commands_in_the_files_are_those_of_the_program() -> None:
    check_command(["phalanx", *container()["args"]])
    check_command(container()["lifecycle"]["preStop"]["exec"]["command"])
    program, *words = shlex.split(unit()["Service"]["ExecStart"])
    assert Path(program).name == "phalanx"
    check_command(["phalanx", *words])
    *_, command = re.findall(r'^CMD \["(\w+)"\]$', DOCKERFILE, re.MULTILINE)
    check_command(["phalanx", command])


def test_members_get_the_time_that_they_need_to_hand_over() -> None:
    hook = container()["lifecycle"]["preStop"]["exec"]["command"]
    waits_s = float(hook[hook.index("--wait") + 1])
    assert stateful_set()["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= waits_s + LEAVE_WITHIN_S + 30
    assert int(unit()["Service"]["TimeoutStopSec"]) >= LEAVE_WITHIN_S + 15
    assert unit()["Service"]["KillMode"] == "mixed", "a second SIGTERM would mean to leave at once"
    config = phalanx.Config()
    assert int(unit()["Service"]["TimeoutStartSec"]) * 1000 > config.join_attempts * config.join_timeout_ms


def test_names_ports_and_selectors_of_the_manifests_agree() -> None:
    found = dict(manifests())
    spec = stateful_set()["spec"]
    labels = spec["template"]["metadata"]["labels"]
    ports = {each["name"]: each["containerPort"] for each in container()["ports"]}
    assert ports == {"grid": DEFAULT_PORT, "http": HTTP_PORT}
    members = found[f"Service {spec['serviceName']}"]["spec"]
    assert members["clusterIP"] == "None"
    assert members["publishNotReadyAddresses"] is True, "who has not joined must be found by the others"
    seeds = next(each["value"] for each in container()["env"] if each["name"] == "PHALANX_SEEDS")
    assert seeds == f"dns:{spec['serviceName']}:{DEFAULT_PORT}"
    for kind, each in found.items():
        if kind.startswith("Service"):
            assert each["spec"]["selector"].items() <= labels.items()
            assert {port["name"]: port["port"] for port in each["spec"]["ports"]} == ports
            assert all(port["targetPort"] in ports for port in each["spec"]["ports"])
    assert found["PodDisruptionBudget phalanx"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    exposed = re.findall(r"^EXPOSE (\d+) (\d+)$", DOCKERFILE, re.MULTILINE)
    assert [tuple(map(int, each)) for each in exposed] == [(DEFAULT_PORT, HTTP_PORT)]


def test_probes_ask_what_members_answer() -> None:
    with listening() as member:
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = container()[name]["httpGet"]
            assert probe["port"] == "http"
            assert ask(member.http_port, probe["path"]).status == 200


def test_the_health_check_of_compose_asks_whether_a_member_serves() -> None:
    check = next(iter(compose()["services"].values()))["healthcheck"]["test"]
    assert check[:3] == ["CMD", "python", "-c"]
    with listening() as member:
        for path, status in (("/readyz", 0), ("/none", 1)):
            code = check[3].replace(f":{HTTP_PORT}/readyz", f":{member.http_port}{path}")
            assert str(member.http_port) in code
            assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == status


def kustomization() -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text()))


def fields_at(manifest: Any, path: str) -> Iterator[Any]:
    """Return what kustomize replaces at a path such as `spec.containers.[name=member].image`."""
    step, _, rest = path.partition(".")
    if step.startswith("["):
        name, _, value = step[1:-1].partition("=")
        found = [each for each in manifest if each[name] == value]
    else:
        found = [manifest[step]]
    for each in found:
        yield from fields_at(each, rest) if rest else [each]


def test_sizes_are_parameters() -> None:
    lines = (DEPLOY / "kubernetes" / "sizes.env").read_text().splitlines()
    sizes = dict(line.split("=") for line in lines if line and not line.startswith("#"))
    replaced = {
        each["source"]["fieldPath"].removeprefix("data."): each["targets"] for each in kustomization()["replacements"]
    }
    assert replaced.keys() == sizes.keys()
    for name, targets in replaced.items():
        for target in targets:
            assert target["select"] == {"kind": "StatefulSet", "name": "phalanx"}
            for path in target["fieldPaths"]:
                assert [str(each) for each in fields_at(stateful_set(), path)] == [sizes[name]], path


def component(name: str) -> dict[str, Any]:
    """Return the one manifest of a component."""
    folder = DEPLOY / "kubernetes" / "components" / name
    [resource] = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    return dict(yaml.safe_load((folder / resource).read_text()))


def test_the_monitor_scrapes_each_member_once_with_the_token() -> None:
    found = component("monitoring")
    wanted = found["spec"]["selector"]["matchLabels"].items()
    services = [
        each
        for kind, each in manifests()
        if kind.startswith("Service") and wanted <= each["metadata"]["labels"].items()
    ]
    assert [each["metadata"]["name"] for each in services] == ["phalanx-members"]
    [endpoint] = found["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in services[0]["spec"]["ports"]}
    secret = next(each for each in stateful_set()["spec"]["template"]["spec"]["volumes"] if each["name"] == "secrets")
    assert endpoint["authorization"]["credentials"] == {"name": secret["secret"]["secretName"], "key": "http-token"}
    with listening() as member:
        assert ask(member.http_port, endpoint["path"]).status == 200


def test_the_policy_lets_members_talk_and_be_scraped() -> None:
    spec = component("network-policy")["spec"]
    labels = stateful_set()["spec"]["template"]["metadata"]["labels"]
    assert spec["podSelector"]["matchLabels"].items() <= labels.items()
    members = {"podSelector": spec["podSelector"]}
    calls, scrapes = spec["ingress"]
    assert members in calls["from"]
    assert [port["port"] for port in calls["ports"]] == [DEFAULT_PORT]
    assert [port["port"] for port in scrapes["ports"]] == [HTTP_PORT]
    others, names = spec["egress"]
    assert (others["to"], [port["port"] for port in others["ports"]]) == ([members], [DEFAULT_PORT])
    assert {(port["protocol"], port["port"]) for port in names["ports"]} == {("UDP", 53), ("TCP", 53)}


def test_nothing_runs_as_root_or_may_become_it() -> None:
    pod = stateful_set()["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == USER
    assert pod["enableServiceLinks"] is False, "its variables would be taken for settings"
    assert container()["securityContext"]["readOnlyRootFilesystem"] is True
    assert container()["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    mounts = {each["mountPath"] for each in container()["volumeMounts"]}
    for each in container()["env"]:
        if each["name"] in SECRETS | {"PHALANX_EVENT_LOG"}:
            assert any(each["value"].startswith(mount) for mount in mounts), each
    for stage in DOCKERFILE.split("\nFROM ")[1:]:
        if " AS build" not in stage.splitlines()[0]:
            assert f"\nUSER {USER}:{USER}\n" in stage, stage.splitlines()[0]
    assert DOCKERFILE.rstrip().splitlines()[-2:] == ['ENTRYPOINT ["phalanx"]', 'CMD ["member"]'], "without a shell"
    assert unit()["Service"]["User"] == "phalanx"


def test_the_image_is_given_what_it_copies() -> None:
    allowed = {line[1:] for line in (DEPLOY.parent / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE):
        for each in line.split():
            assert (DEPLOY.parent / each).exists(), each
            assert each in allowed, f"{each} is not let through by .dockerignore"
    extras = set(re.findall(r'"\./packages/phalanx\[([\w,]+)\]"', DOCKERFILE))
    assert extras == {"cli,http", "spark"}


def test_variables_of_the_unit_are_settings() -> None:
    lines = (DEPLOY / "systemd" / "phalanx.service").read_text().splitlines()
    variables = [line.partition("=")[2].partition("=")[0] for line in lines if line.startswith("Environment=")]
    assert {each.removeprefix(PREFIX).lower() for each in variables} <= set(phalanx.Config.__struct_fields__)
    assert unit()["Service"]["Type"] == "notify"


# Elsewhere the tests above hold the unit.
if shutil.which("systemd-analyze") is not None:

    def test_systemd_understands_the_unit(tmp_path: Path) -> None:
        text = (DEPLOY / "systemd" / "phalanx.service").read_text().replace("/opt/phalanx/bin/phalanx", "/bin/true")
        (tmp_path / "phalanx.service").write_text(text)
        done = subprocess.run(
            ["systemd-analyze", "verify", str(tmp_path / "phalanx.service")],
            capture_output=True,
            text=True,
            check=False,
        )
        about = [line for line in done.stderr.splitlines() if "phalanx" in line]
        assert not about, done.stderr
