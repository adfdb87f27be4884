"""Pods without Kubernetes: the container's command line and environment, in a network namespace with a name server.

What the kubelet would do, these tests do: they take entry point and environment from the files in `deploy/`, give each pod
its address, mount secrets, run the hook before SIGTERM.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # it has no types

from cuts.network import Network

from .dns_server import Answers, dns_server
from .roots import DEPLOY

NAME = "phalanx-members"
PORT = 5701


def stateful_set() -> dict[str, Any]:
    """The StatefulSet of the manifests."""
    return dict(yaml.safe_load((DEPLOY / "kubernetes" / "statefulset.yaml").read_text()))


def container() -> dict[str, Any]:
    """Its one container."""
    (only,) = stateful_set()["spec"]["template"]["spec"]["containers"]
    return dict(only)


def entry_point() -> list[str]:
    """The entry point of the image, which is the command in the environment of this test."""
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    last = re.findall(r'^ENTRYPOINT \["(\w+)"\]$', text, re.MULTILINE)[-1]
    assert last == "phalanx"
    return [str(Path(sys.executable).parent / last)]


class Pods:
    """Hosts on which pods run, and the name server that they ask."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.network = network
        self.folder = folder
        *self.hosts, self.name_server = network.hosts
        self.answers = Answers(NAME)
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def settings(self, host: str, **more: str) -> dict[str, str]:
        """The environment that the manifest gives the pod on a host."""
        secrets = self.folder / "secrets"
        found = {}
        for each in container()["env"]:
            source = each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            value = {"status.podIP": host, "spec.nodeName": f"node-of-{host}"}[source] if source else each["value"]
            found[each["name"]] = value.replace("/etc/phalanx/secrets", str(secrets)).replace(
                "/var/lib/phalanx", str(self.folder / host)
            )
        return found | more

    def command(self, host: str, *arguments: str) -> list[str]:
        """A command in the pod on a host; the first word is the image's entry point."""
        return ["ip", "netns", "exec", self.network.name_of(host), *entry_point(), *arguments]

    def start(self, host: str, **more: str) -> None:
        (self.folder / host).mkdir(exist_ok=True)
        log = (self.folder / f"{host}.log").open("ab")
        self.running[host] = subprocess.Popen(
            self.command(host, *container()["args"]),
            env={"PATH": os.environ["PATH"]} | self.settings(host, **more),
            stdout=log,
            stderr=log,
        )

    def run(self, host: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the pod, as its hook or an operator would."""
        return subprocess.run(
            self.command(host, *arguments),
            env={"PATH": os.environ["PATH"]} | self.settings(host),
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    def log(self, host: str) -> str:
        return (self.folder / f"{host}.log").read_text()


@contextmanager
def pods(count: int, folder: Path) -> Iterator[Pods]:
    """Hosts for so many pods. What still runs in the end is killed."""
    secrets = folder / "secrets"
    secrets.mkdir()
    for name in ("cluster-secret", "http-token"):
        (secrets / name).write_text("of these pods only, and long enough\n".replace(" ", "-").replace(",", ""))
        (secrets / name).chmod(0o400)
    with ExitStack() as stack:
        network = stack.enter_context(Network(count + 1))
        made = Pods(network, folder)
        for host in made.hosts:
            etc = Path("/etc/netns") / network.name_of(host)
            etc.mkdir(parents=True)
            stack.callback(shutil.rmtree, etc)
            (etc / "resolv.conf").write_text(f"nameserver {made.name_server}\noptions timeout:1 attempts:1\n")
        with network.inside(made.name_server):
            stack.enter_context(dns_server(made.answers, made.name_server))
        try:
            yield made
        finally:
            for process in made.running.values():
                if process.poll() is None:
                    process.kill()
                process.wait()
