"""The tables of settings name each setting once, with its present default; a member loads the files that the page shows."""

import re
from pathlib import Path
from typing import Any

import msgspec

from phalanx.common.map_config import MapConfig
from phalanx.common.map_settings import MAP_SETTINGS, MapSetting, MapSettings
from phalanx.runtime.settings.config import Config
from phalanx.runtime.settings.load_config import load_config
from support.reader import blocks_of
from support.roots import DOCS

TABLE = DOCS / "configuration.md"
NO_SETTING = MapSetting("")


def shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value)
    return f'"{value}"' if isinstance(value, str) else str(value)


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default is not msgspec.NODEFAULT else field.default_factory()


def test_the_table_of_settings_is_complete_and_its_defaults_are_true() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `([^`]*)` \|(.*)\|$", TABLE.read_text(encoding="utf-8"), re.MULTILINE)
    told = [(name, default) for name, default, _ in rows]
    true = [(field.name, shown(default_of(field))) for field in msgspec.structs.fields(Config)]
    assert sorted(told) == sorted(true)
    for name, _, cells in rows:
        assert len([cell for cell in cells.split("|") if cell.strip()]) == 3, f"{name}: meaning, raising, lowering"


def test_the_table_of_map_settings_is_complete_and_its_defaults_are_true() -> None:
    part = TABLE.read_text(encoding="utf-8").partition("\n## Maps\n")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ([^|]*) \|", part, re.MULTILINE)
    told = [name for names, _ in rows for name in re.findall(r"\w+", names)]
    assert sorted(told) == sorted(MapConfig.__struct_fields__)
    simple = {name: default for name, default in rows if MAP_SETTINGS.get(name.strip("`"), NO_SETTING).is_simple}
    present = msgspec.structs.asdict(MapSettings())
    assert simple == {f"`{name}`": str(present[name]) for name, each in MAP_SETTINGS.items() if each.is_simple}


def test_the_configuration_files_shown_are_loaded_by_a_member(tmp_path: Path) -> None:
    shown_files = [block.code for block in blocks_of(TABLE, "docs/configuration.md") if block.language == "toml"]
    assert len(shown_files) == 1
    for text in shown_files:
        file = tmp_path / "member.toml"
        file.write_text(text, encoding="utf-8")
        maps = load_config(file, environ={}).maps
        assert maps["orders*"] == MapConfig(backup_count=2, minimum_members=3, merge_policy="put-if-absent")
