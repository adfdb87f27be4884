"""`phalanx map list` says which maps there are; the command completes its words in a shell."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from support.commands import Command
from support.processes import Cluster

IMPORTED = "import sys; sys.argv[0] = 'phalanx'; from phalanx.cli.main import main"
"""Makes the command in a process, under the name that the shell calls it by."""


def test_maps_are_listed_with_their_entries_and_bounds(phalanx_command: Command, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "listed")
    try:
        cluster.start()
        at = ("--at", cluster.members[0].address, "--cluster", cluster.name)
        assert phalanx_command("map", "list", *at).stdout == ""
        with cluster.client() as grid:
            grid.map("prices").update({"a": 1, "b": 2})
            grid.map("a name\nin two lines")["a"] = 1
            grid.map("emptied")["a"] = 1
            grid.map("emptied").clear()
        phalanx_command("map", "max-entries", "prices", "1000", *at)
        phalanx_command("map", "dicts", "prices", "json", *at)
        first, second = phalanx_command("map", "list", *at).stdout.splitlines()
        assert first.startswith(r"a name\nin two lines" + "\t1 entry\t")
        assert second.startswith("prices\t2 entries\t")
        assert second.endswith("\tat most 1,000 entries\tdicts json")
        told = [json.loads(line) for line in phalanx_command("map", "list", "--json", *at).stdout.splitlines()]
        assert told[1] == {
            "map": "prices",
            "size": 2,
            "backups": {"sync": 1, "async": 0},
            "max_entries": 1_000,
            "max_bytes": 0,
            "dicts": "json",
        }
    finally:
        cluster.stop()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell: str) -> None:
    words = {"bash": {"COMP_WORDS": "phalanx map lis", "COMP_CWORD": "2"}}
    asked = words.get(shell, {"_TYPER_COMPLETE_ARGS": "phalanx map lis", "_TYPER_COMPLETE_FISH_ACTION": "get-args"})
    environ = os.environ | asked | {"_PHALANX_COMPLETE": f"complete_{shell}"}
    done = subprocess.run(
        [sys.executable, "-c", f"{IMPORTED}; main()"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "list" in done.stdout, done.stderr


def test_zsh_completes_at_the_first_tab() -> None:
    """zsh loads the script then, as the body of the function that completes: a shell of its own does it here."""
    if (zsh := shutil.which("zsh")) is None:
        pytest.skip("zsh is not here: install the package zsh")
    with tempfile.TemporaryDirectory() as folder:
        script = subprocess.run(
            [sys.executable, "-c", f"{IMPORTED}; main()", "--show-completion", "zsh"],
            env=os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        Path(folder, "_phalanx").write_text(script.stdout)
        # The command answers with what its script asks of it, and says the words that it was given.
        Path(folder, "phalanx").write_text("#!/bin/sh\necho \"print -r -- asked: '$_TYPER_COMPLETE_ARGS'\"\n")
        Path(folder, "phalanx").chmod(0o755)
        told = subprocess.run(
            [zsh, "-f", "-c", "compdef() { :; }; fpath=($PWD $fpath); autoload -Uz _phalanx; words=(phalanx map l); "
             "CURRENT=3; path=($PWD $path); _phalanx; _phalanx_completion"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
    assert told.stdout == "asked: phalanx map l\n" * 2, told.stderr
