"""Plays hostile inputs against one part of the product after the other: `./run fuzz`.

    ./run fuzz                                  each target for a share of a minute
    ./run fuzz --minutes 60 --target resp       one target (--target may be repeated; --list names all)
    ./run fuzz --repeat build/fuzz/resp-1.case  one input again: what it does
    ./run fuzz --source ../other/src            another tree's package

A finding is written to a file that --repeat plays; the exit status is 1 if there is one. What was played is added up in
`build/fuzz/played.json`. What a target is, and what counts as a finding: tests/hostile/fuzzing.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from hostile.fuzzing.judging import Finding  # noqa: E402
from hostile.fuzzing.supervisor import Played, confirm, run_target  # noqa: E402
from hostile.fuzzing.targets import MODULES  # noqa: E402
from hostile.fuzzing.texts import from_text, to_text  # noqa: E402

FOLDER = ROOT / "build" / "fuzz"


def save(finding: Finding, folder: Path) -> Path:
    """Write a finding into a file of its own, whose first word is its target."""
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    while (path := folder / f"{finding.target}-{number}.case").exists():
        number += 1
    about = f"{finding.target}\n{finding.kind}: {finding.what}\n{finding.detail[-2000:]}"
    path.write_text(to_text(finding.case, about), encoding="utf-8")
    return path


def repeat(path: Path, source: Path | None) -> int:
    text = path.read_text(encoding="utf-8")
    found = re.match(r"# (\S+)", text)
    name = found[1] if found and found[1] in MODULES else path.parent.name
    if name not in MODULES:
        raise SystemExit(f"fuzz: {path}: its first line must be '# TARGET'")
    finding = confirm(name, from_text(text), source)
    if finding is None:
        print(f"{name}: no harm")
        return 0
    print(f"{name}: {finding.kind}: {finding.what}\n{finding.detail}")
    return 1


def note(played: Played) -> int:
    """Add what was played to the sums; return the sum of all."""
    path = FOLDER / "played.json"
    sums: dict[str, int] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    key = f"{played.target} {sys.version_info[0]}.{sys.version_info[1]}"
    sums[key] = sums.get(key, 0) + played.inputs
    FOLDER.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(sums, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return sum(sums.values())


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./run fuzz", description="Hostile inputs for one part of the product after the other."
    )
    parser.add_argument("--minutes", type=float, default=1.0, metavar="M", help="for all targets together (1)")
    parser.add_argument(
        "--target", action="append", choices=sorted(MODULES), metavar="T", help="only this one; may be repeated"
    )
    parser.add_argument(
        "--seed",
        default="",
        metavar="S",
        help="other inputs for another text; default: a new one each time, which is told",
    )
    parser.add_argument("--repeat", type=Path, metavar="FILE", help="play the one input in this file")
    parser.add_argument(
        "--source",
        type=Path,
        metavar="DIR",
        help="the folder that holds the package to be played; default: this checkout's",
    )
    parser.add_argument(
        "--findings", type=Path, default=FOLDER, metavar="DIR", help="where findings are written (build/fuzz)"
    )
    parser.add_argument("--list", action="store_true", help="name the targets")
    arguments = parser.parse_args()
    source = arguments.source.resolve() if arguments.source is not None else None
    if arguments.list:
        print("\n".join(sorted(MODULES)))
        return 0
    if arguments.repeat is not None:
        return repeat(arguments.repeat, source)
    targets = arguments.target or list(MODULES)
    seed = arguments.seed or str(random.SystemRandom().randrange(10**9))
    print(f"seed {seed}", flush=True)
    seconds, status, total = arguments.minutes * 60 / len(targets), 0, 0

    def report(finding: Finding) -> None:
        path = save(finding, arguments.findings)
        detail = finding.detail.strip().splitlines() or [""]
        print(f"  {finding.kind}: {finding.what}: {detail[-1]}\n  ./run fuzz --repeat {path}", flush=True)

    for name in targets:
        began = time.monotonic()
        played = run_target(name, seed, seconds=seconds, source=source, report=report)
        took = time.monotonic() - began
        total = note(played)
        print(f"{name}: {played.inputs:,} inputs in {took:.0f} s, {len(played.findings)} findings", flush=True)
        for finding in played.unrepeated:
            path = save(finding, arguments.findings / "unrepeated")
            print(f"  not found again: {finding.kind}: {finding.what}: {path}", flush=True)
        if played.trouble:
            print(f"  {played.trouble}", flush=True)
        if played.findings or played.trouble:
            status = 1
    print(f"{total:,} inputs until now, by build/fuzz/played.json")
    return status


if __name__ == "__main__":
    sys.exit(main())
