"""What is read from outside of the cluster: settings, archives, event logs; and the page that shows what logs say."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any, ClassVar
from unittest import mock

import msgspec
import pyarrow as pa

from hostile.fuzzing.changes import ODD_NUMBERS, changed_bytes
from hostile.fuzzing.target import MIB, Case, Target, Turns, Wrong
from phalanx.common.errors import UsageError
from phalanx.runtime.settings.config import Config
from phalanx.runtime.settings.load_config import load_config, read_assignments, read_environment
from phalanx_spark.archive.manifest import Manifest, manifest_in, settings_of
from phalanx_spark.audit.local_runner import read_here
from phalanx_spark.audit.page import page_of
from phalanx_spark.audit.reading import BadLine
from phalanx_spark.audit.verdicts import Report

_ODD_TEXTS = (
    "", "a", "../a", "/etc", "..", "maps/0000", "maps/../..", "</script>", "@SCRIPT@", "@REPORT@", "<!--", "\\u003c/script>", "\0", "\ud7ff",
    "é", "x" * 300, "{{7*7}}", "${a}", "'", '"', "\u2028", "hdfs://a/b", "nul", "a:b", "*", "-1", "1e400", "true",
)  # fmt: skip


OF_COMMANDS_MS = 1_000.0
"""A command reads these, and no member waits for it."""


class Settings(Target):
    """A TOML file, variables of the environment, and assignments of the command line."""

    name = "config"
    answer_bytes = MIB
    turn_ms = OF_COMMANDS_MS
    _names = tuple(field.name for field in msgspec.structs.fields(Config))
    _values = (
        "1", "-1", "0", "true", '"text"', "[]", '["a", 1]', "{a = 1}", "1.5", "nan", "1979-05-27", '"127.0.0.1"', '"0.0.0.0"', '"::1"',
        '["redis"]', '{"a*" = {max_bytes = 1}}', str(2**63), '"\\u0000"', "[" * 300, '"' + "x" * 3_000 + '"',
    )  # fmt: skip

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="fuzz-config-")
        self._path = Path(self._folder) / "phalanx.toml"

    def make(self, rng: Random) -> Case:
        # Modules that a file names are imported: that is what the setting is for.
        names = [rng.choice([each for each in self._names if each != "functions"]) for _ in range(rng.randrange(1, 4))]
        lines = "\n".join(f"{name} = {rng.choice(self._values)}" for name in names)
        variable = f"PHALANX_{rng.choice(names).upper()}={rng.choice(self._values)}"
        return [lines.encode(), variable.encode(), f"{rng.choice(names)}={rng.choice(self._values)}".encode()]

    def play(self, case: Case, turns: Turns) -> None:
        written, variable, assignment = (*case, b"", b"", b"")[:3]
        if b"functions" in written.lower() or len(written) > 64 * 1024:
            return
        self._path.write_bytes(written)
        name, _, value = variable.decode("utf-8", "replace").partition("=")
        for read in (
            lambda: load_config(self._path, environ={}),
            lambda: read_environment({name: value}),
            lambda: read_assignments([assignment.decode("utf-8", "replace")]),
        ):
            with contextlib.suppress(UsageError):
                read()


class _Folder:
    """An archive of which only the manifest is there."""

    address = "archive"

    def __init__(self, text: str) -> None:
        self._text = text

    def of(self, name: str) -> str:
        return f"archive/{name}"

    def is_empty(self) -> bool:
        return False

    def read_text(self, name: str) -> str | None:
        return self._text


class Archive(Target):
    """The manifest of an archive."""

    name = "archive"
    answer_bytes = MIB
    turn_ms = OF_COMMANDS_MS

    def make(self, rng: Random) -> Case:
        maps = [
            {"name": rng.choice(_ODD_TEXTS), "folder": rng.choice((*_ODD_TEXTS, "maps/0001")), "entries": rng.choice(ODD_NUMBERS) % 2**63,
             "settings": {rng.choice(("max_bytes", "ttl_ms", "dicts", "odd")): rng.choice((1, -1, "x", None, [1], 2**70))}}
            for _ in range(rng.randrange(3))
        ]  # fmt: skip
        made = {
            "format": rng.choice((1, 1, 1, 2)),
            "cluster": "c",
            "exported_ms": 1,
            "partition_count": 7,
            "consistent": True,
            "maps": maps,
        }
        try:
            text = msgspec.json.encode(made)
        except OverflowError:
            text = b"{}"
        return [changed_bytes(rng, text) if rng.random() < 0.3 else text]

    def play(self, case: Case, turns: Turns) -> None:
        text = b"".join(case).decode("utf-8", "replace")
        try:
            manifest: Manifest = manifest_in(_Folder(text))
            for each in manifest.maps:
                path = PurePosixPath(each.folder)
                if path.is_absolute() or ".." in path.parts or "\\" in each.folder or ":" in each.folder:
                    raise Wrong(f"the folder {each.folder!r} leads out of the archive")
                settings_of(each)
        except UsageError:
            return


class EventLog(Target):
    """Lines of an event log."""

    name = "event-log"
    answer_bytes: ClassVar[int] = 64 * MIB
    turn_ms = OF_COMMANDS_MS
    _fields = pa.schema(
        {
            "at": pa.int64(),
            "cluster": pa.string(),
            "member": pa.string(),
            "event": pa.string(),
            "members": pa.list_(pa.string()),
            "partition": pa.int32(),
        }
    )

    def make(self, rng: Random) -> Case:
        lines = []
        for _ in range(rng.randrange(1, 5)):
            line: dict[str, Any] = {
                "at": 1,
                "cluster": "c",
                "member": rng.choice(_ODD_TEXTS),
                "event": rng.choice(("ViewInstalled", "Suspected", "odd")),
            }
            line[rng.choice(("members", "partition", "removed", "before", "odd"))] = rng.choice(
                (1, "x", ["a"], None, -(2**63), {"a": [1]}, [])
            )
            data = msgspec.json.encode(line)
            lines.append(changed_bytes(rng, data) if rng.random() < 0.3 else data)
        return lines

    def play(self, case: Case, turns: Turns) -> None:
        folder = Path(tempfile.mkdtemp(prefix="fuzz-log-"))
        try:
            path = folder / "a.jsonl"
            path.write_bytes(b"\n".join(case)[:MIB])
            damage = read_here([path], folder / "tables", self._fields, 1)
            if damage:
                raise Wrong(f"a plain file is damaged: {damage}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)


class AuditPage(Target):
    """Texts of a report, wherever it has texts."""

    name = "audit-page"
    answer_bytes: ClassVar[int] = 64 * MIB
    turn_ms = OF_COMMANDS_MS

    def __init__(self) -> None:
        self._usual = self._page([b"a"])

    def make(self, rng: Random) -> Case:
        return [
            changed_bytes(rng, rng.choice(_ODD_TEXTS).encode())
            if rng.random() < 0.3
            else rng.choice(_ODD_TEXTS).encode()
            for _ in range(3)
        ]

    def _page(self, case: Case) -> str:
        texts = [part[:10_000].decode("utf-8", "replace") for part in case] or [""]
        bad = (BadLine(texts[0], 1, texts[-1], texts[0]),)
        report = (
            Report(
                ok=False, folder=texts[-1], files=1, events=1, members=1, histories=1, begins=0, ends=1, verdicts=(), bad_lines=1, bad=bad,
                empty_logs=(texts[0],), notes=(texts[-1],), took_s=0.1, charts={"history": texts[0], "marks": texts},
            )
        )  # fmt: skip
        with mock.patch(
            "vl_convert.javascript_bundle", return_value="() => {}"
        ):  # takes a second, and is always the same
            return page_of(report)

    def play(self, case: Case, turns: Turns) -> None:
        page = self._page(case)
        for tag in ("<script", "</script", "<style", "</style", "<!--"):
            if page.lower().count(tag) != self._usual.lower().count(tag):
                raise Wrong(f"a text of a log begins or ends a part of the page: {tag}")
        found = re.search(r"<script[^>]*application/json[^>]*>(.*?)</script>", page, re.DOTALL)
        if found is not None:
            msgspec.json.decode(found[1])


TARGETS: dict[str, type[Target]] = {each.name: each for each in (Settings, Archive, EventLog, AuditPage)}
