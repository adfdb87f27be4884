"""`phalanx simulate --scenario FILE`: plays a history that a text file commands, and shows it (docs/scenarios.md)."""

from __future__ import annotations

from pathlib import Path

from phalanx.common.errors import UsageError
from phalanx.reports.value_json import as_json
from phalanx_proof.sim.scenario.script import play


def play_scenario(path: Path, *, rewrite: bool, is_quiet: bool) -> bool:
    """Play a file; True if it went otherwise than the file says. `rewrite`: write what it shows, if all expected holds."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--scenario: {path} cannot be read: {error}") from None
    played = play(text, str(path))
    if not is_quiet:
        print(played.text)
        for failure in played.failures:
            print(f"FAILED {failure}")
        if played.difference and not rewrite:
            print(played.difference)
    is_rewritten = rewrite and bool(played.difference) and not played.failures
    if is_rewritten:
        path.write_text(played.text, encoding="utf-8")
    differs = bool(played.difference) and not is_rewritten
    summary = {"scenario": str(path), "digest": played.digest, "failures": played.failures, "differs": differs}
    print(as_json(summary | {"rewritten": is_rewritten}))
    return bool(played.failures) or differs
