"""The last released protocol, from its wheels: its core beside that of this tree in one process, and its command."""

import contextlib
import importlib
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, reduce
from operator import or_
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

import phalanx.wire.codec
from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.machine import effects, inputs
from phalanx.wire.events import EVENT_KINDS
from phalanx.wire.messages import Message

from .roots import BUILD, TESTS

PACKAGES = ("phalanx", "phalanx_protocols")
"""Where the second is installed, the core takes functions from it: so the released core must have its own, too."""
WHEELS = tuple(TESTS / "releases" / f"{package}-0.1.0-py3-none-any.whl" for package in PACKAGES)
OLDEST = 7
"""The oldest protocol that it speaks."""
PROTOCOL = 8
"""The newest one."""


def unpacked() -> Path:
    """The folder with the packages of the wheels, unpacked once: compiled modules are kept there."""
    stats = [wheel.stat() for wheel in WHEELS]
    folder = BUILD / "releases" / "-".join(f"{stat.st_size}-{int(stat.st_mtime)}" for stat in stats)
    if not folder.exists():
        partly = folder.with_name(f"{folder.name}.{os.getpid()}")
        for wheel in WHEELS:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(partly)
        with contextlib.suppress(OSError):  # another process was faster
            partly.rename(folder)
    return folder


def command() -> tuple[str, ...]:
    """The command `phalanx` of the wheels, with the packages of this environment."""
    return ("env", f"PYTHONPATH={unpacked()}", sys.executable, "-m", "phalanx")


def _loaded() -> dict[str, ModuleType]:
    """Return the modules of these packages that are imported, whosever they are."""
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] in PACKAGES}


@contextmanager
def _alone() -> Iterator[None]:
    """While it lasts, the packages are those of the wheels: what is imported stays apart from this tree's."""
    ours = _loaded()
    for name in ours:
        del sys.modules[name]
    sys.path.insert(0, str(unpacked()))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(unpacked()))
        for name in _loaded():
            del sys.modules[name]
        sys.modules.update(ours)


class Release:
    """The modules of the wheels' core, and what carries messages, events and values over from one core to the other."""

    def __init__(self) -> None:
        with _alone():
            self.node = self._import("node.node")
            self.inputs = self._import("machine.inputs")
            self.effects = self._import("machine.effects")
            self.config = self._import("common.config")
            self.versions = self._import("common.versions")
            self.codec = self._import("wire.codec")
            self.events = self._import("wire.events")
            self.orphaned = self._import("grid.merge.orphaned_replicas")
            self.sender = self._import("grid.merge.sender")
            self.greeting = self._import("net.greeting")
            self.secret = self._import("net.secret")
            # Annotations are resolved in `sys.modules` when they are first needed.
            self.config.NodeConfig()
            self._map_settings = self._import("common.map_config").MapConfig.__struct_fields__
        self._encode = msgspec.msgpack.encode
        self._decode_event = msgspec.msgpack.Decoder(reduce(or_, EVENT_KINDS.values())).decode
        self._decode_view = msgspec.msgpack.Decoder(MembersView).decode
        self._decode_table = msgspec.msgpack.Decoder(PartitionTable).decode

    @staticmethod
    def _import(name: str) -> ModuleType:
        module = importlib.import_module(f"phalanx.{name}")
        assert str(module.__file__).startswith(str(unpacked())), module.__file__
        return module

    def to_theirs(self, message: Message) -> Any:
        """A message as their decoder reads it. Raises `msgspec.ValidationError` if they do not know it."""
        return self.codec.message_decoder.decode(self._encode(message))

    def to_ours(self, message: Any) -> Message:
        """A message of theirs, as this tree's decoder reads it."""
        return phalanx.wire.codec.message_decoder.decode(self._encode(message))

    def settings(self, config: NodeConfig) -> Any:
        """The settings that they know."""
        known = {name: getattr(config, name) for name in self.config.NodeConfig.__struct_fields__}
        maps = {
            name: {
                setting: value for setting, value in msgspec.to_builtins(each).items() if setting in self._map_settings
            }
            for name, each in config.maps.items()
        }
        return self.config.NodeConfig(**known | {"maps": maps})

    def input_to_theirs(self, event: inputs.Input) -> Any:
        kind = getattr(self.inputs, type(event).__name__)
        match event:
            case inputs.Received():
                return kind(event.sender, self.to_theirs(event.message))
            case inputs.ReceivedTogether():
                return kind(event.sender, [self.to_theirs(message) for message in event.messages])
            case inputs.Call():
                return kind(event.partition, self.to_theirs(event.request), event.to, event.within_ms, event.lost)
            case inputs.Started():
                return kind(event.past)  # of an incarnation of theirs, or none
            case _:
                known = len(kind.__struct_fields__)  # fields are only added
                return kind(*msgspec.structs.astuple(event)[:known])

    def effect_to_ours(self, effect: Any) -> effects.Effect:
        match type(effect).__name__:
            case "Send":
                return effects.Send(effect.to, self.to_ours(effect.message))
            case "Answer":
                return effects.Answer(self.to_ours(effect.reply))  # type: ignore[arg-type]  # a reply stays one
            case "Record":
                return effects.Record(self._decode_event(self._encode(effect.event)))
            case _:
                # What it leaves to its next incarnation, of the same release, stays as it is.
                return effects.Finished(*msgspec.structs.astuple(effect))

    def view_to_ours(self, view: Any) -> MembersView | None:
        return self._decode_view(self._encode(view)) if view is not None else None

    def table_to_ours(self, table: Any) -> PartitionTable:
        return self._decode_table(self._encode(table))


@cache
def release() -> Release:
    """The release, loaded once in a process."""
    return Release()


class _Latest:
    """The latest value of a kind that their node has, as this tree's."""

    def __init__(self, convert: Callable[[Any], Any]) -> None:
        self._convert = convert
        self._theirs: Any = self
        self._ours: Any = None

    def __call__(self, value: Any) -> Any:
        if value is not self._theirs:
            self._theirs, self._ours = value, self._convert(value)
        return self._ours


class _Converted:
    """Passes on to a part of their node, except for one value, which is given as this tree's."""

    def __init__(self, part: Any, name: str, latest: _Latest) -> None:
        self._part, self._name, self._latest = part, name, latest

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._part, name)
        return self._latest(value) if name == self._name else value

    def __repr__(self) -> str:
        return repr(self._part)


class ReleasedNode:
    """A member of the released core behind the door of this tree's `Node`. Every message to and from it goes through bytes."""

    def __init__(
        self, this: MemberId, config: NodeConfig, clock_offset_ms: Millis, kept: Any = None, carried: Any = None
    ) -> None:
        of = self._release = release()
        self.this = this
        self._node = of.node.Node(this, of.settings(config), clock_offset_ms, kept=kept, carried=carried)
        self._view, self._table = _Latest(of.view_to_ours), _Latest(of.table_to_ours)
        self.membership = _Converted(self._node.membership, "view", self._view)
        self.installed_table = _Converted(self._node.installed_table, "table", self._table)

    def __repr__(self) -> str:
        return f"released {self._node!r}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def handle(self, event: inputs.Input, now: Millis) -> list[effects.Effect]:
        return [self._effect_to_ours(each) for each in self._node.handle(self._release.input_to_theirs(event), now)]

    def _effect_to_ours(self, effect: Any) -> effects.Effect:
        match type(effect).__name__:
            case "ViewChanged":
                return effects.ViewChanged(self._view(effect.view))
            case "TableChanged":
                return effects.TableChanged(self._table(effect.table))
            case _:
                return self._release.effect_to_ours(effect)

    def next_deadline(self) -> Millis | None:
        deadline: Millis | None = self._node.next_deadline()
        return deadline
