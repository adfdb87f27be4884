"""What tests of archives share: entries of all kinds, settings of maps, archives that are not as they were."""

import datetime as dt
import json
import shutil
import uuid
from decimal import Decimal
from pathlib import Path

from phalanx.client.ask import Inquirer, ask_any, find_master
from phalanx.common.map_settings import MapChange
from phalanx_spark.archive.exporting import Source

from .processes import Cluster

ENTRIES = {
    "text": "Δ ☂", "nothing": None, ("a", 1): True, 7: -(2**63), 2.5: float("inf"), b"\0\xff": bytes(range(256)),
    uuid.UUID(int=5): [1, "two", None], dt.date(1999, 12, 31): {"nested": {"list": [dt.datetime(2000, 1, 1, 12)]}},
    Decimal("1.50"): Decimal("-0.00001"), "big": "x" * 300_000,
} | {f"many-{number}": number for number in range(3_000)}  # fmt: skip


def source_of(cluster: Cluster) -> Source:
    return Source(cluster.addresses, cluster.name)


def change(cluster: Cluster, name: str, change: MapChange) -> None:
    master = find_master(cluster.addresses, cluster.name)
    ask_any(master, cluster.name, lambda inquirer: inquirer.change_map(name, change))


def settings(cluster: Cluster, name: str) -> object:
    return ask_any(cluster.addresses, cluster.name, Inquirer.placement).table.maps.of(name)


def altered(archive: Path, copy: Path, alter) -> Path:  # type: ignore[no-untyped-def]  # changes a dict
    """The same files under another manifest."""
    shutil.copytree(
        archive, copy, ignore=shutil.ignore_patterns(".manifest.json.crc")
    )  # Spark's, of the other manifest
    told = json.loads((archive / "manifest.json").read_text())
    alter(told)
    (copy / "manifest.json").write_text(json.dumps(told))
    return copy
