"""The manifest of an archive: what is in it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from phalanx.common.errors import UsageError
from phalanx.common.map_settings import MapSettings
from phalanx.common.words import quoted
from phalanx_spark.archive.folder import Folder, Readable, check_part

FORMAT = 1
MANIFEST = "manifest.json"

ENTRY_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("written_ms", pa.int64(), nullable=False),
        pa.field("expires_ms", pa.int64()),
    ]
)
"""Key and value as they are serialised; when the entry was written, by the grid's clock, and when its time to live is over,
by the clock of the machine that exported it (null: never), both in milliseconds since 1970.
"""


class ArchivedMap(msgspec.Struct, frozen=True):
    """One map of an archive."""

    name: str
    folder: str
    entries: int
    settings: dict[str, object]


class Manifest(msgspec.Struct, frozen=True):
    """What is in an archive, and where it comes from."""

    format: int
    cluster: str
    exported_ms: int
    """By the clock of the machine that exported it, since 1970."""
    partition_count: int
    consistent: bool
    """Whether each partition of a map is as it was at one moment, before its first entry was read."""
    maps: tuple[ArchivedMap, ...]

    def chosen(self, names: Sequence[str]) -> list[ArchivedMap]:
        """Return the maps of these names, or all of them if none is given. Raises `UsageError` if one is not there."""
        by_name = {each.name: each for each in self.maps}
        missing = [name for name in names if name not in by_name]
        if missing:
            there = ", ".join(sorted(by_name)) or "none"
            raise UsageError(f"the archive has no map {missing[0]!r}; it has: {there}")
        return [by_name[name] for name in names] if names else list(self.maps)


def settings_as_fields(settings: MapSettings) -> dict[str, object]:
    """Return the settings of a map as a manifest has them."""
    found = msgspec.to_builtins(settings)
    return dict(zip(settings.__struct_fields__, found, strict=True))


def settings_of(archived: ArchivedMap) -> MapSettings:
    """Return the settings that a map had. Raises `UsageError` if this version does not know one of them."""
    fields = archived.settings
    unknown = sorted(set(fields) - set(MapSettings.__struct_fields__))
    if unknown:
        raise UsageError(
            f"the archive's map {archived.name!r} has a setting {unknown[0]!r}, which this version does not know: "
            "restore with a newer one, or with --without-settings"
        )
    usual = msgspec.to_builtins(MapSettings())
    values = [fields.get(name, value) for name, value in zip(MapSettings.__struct_fields__, usual, strict=True)]
    try:
        return msgspec.convert(values, MapSettings)
    except msgspec.ValidationError as error:
        raise UsageError(f"the settings of the archive's map {archived.name!r} cannot be used: {error}") from None


def write_manifest(folder: Folder, manifest: Manifest) -> None:
    """Write the manifest; the archive is whole then."""
    folder.write_text(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2).decode() + "\n")


def manifest_in(folder: Readable) -> Manifest:
    """Read the manifest of an archive. Raises `UsageError` if there is none, or if an export into it did not end."""
    text = folder.read_text(MANIFEST)
    if text is None:
        nothing = folder.is_empty()
        why = "there is nothing" if nothing else f"it has no {MANIFEST}: no export into it has ended"
        raise UsageError(f"{folder.address} is not an archive: {why}")
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(f"{folder.of(MANIFEST)} cannot be read: {error}") from None
    if manifest.format != FORMAT:
        raise UsageError(
            f"{folder.address} is an archive of format {manifest.format}; this version reads format {FORMAT}"
        )
    for each in manifest.maps:
        check_part(each.folder, f"{folder.of(MANIFEST)}: the folder of map {quoted(each.name)}")
    return manifest
