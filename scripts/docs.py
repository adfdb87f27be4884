"""`./run docs`: the documentation as a site, the code's transition tables in its pages, and the list of pages in the README.

./run docs             draw tables and list, then build the site into build/site
./run docs --check     the same, but change nothing: say whether one is stale or the site does not build
./run docs --serve     draw tables and list, then show the site on 127.0.0.1 until Ctrl-C; --port chooses where

Every warning of the build is an error: a broken link, a missing anchor, a page that the navigation does not name.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import diagrams

ROOT = Path(__file__).resolve().parent.parent
QUIET = {"NO_MKDOCS_2_WARNING": "1"}
"""Leaves out Material's notice about MkDocs 2, which pyproject.toml excludes."""


def mkdocs(*arguments: str | Path) -> int:
    """Run MkDocs in the checkout, and show what it says where it fails; its exit status."""
    # Not with --quiet: a warning that is not logged is not counted, so --strict would let it pass.
    command = [sys.executable, "-m", "mkdocs", *map(str, arguments)]
    shown = None if "serve" in arguments else subprocess.PIPE
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **QUIET}, check=False, stderr=subprocess.STDOUT, stdout=shown, text=True
    )
    if done.returncode and done.stdout:
        print(done.stdout, file=sys.stderr)
    return done.returncode


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run docs", description="Build the documentation as a site, strictly.")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--check", action="store_true", help="change nothing; status 1 where something is stale or broken")
    how.add_argument("--serve", action="store_true", help="show the site on 127.0.0.1, and build it anew on changes")
    parser.add_argument("--port", type=int, default=8000, help="where --serve listens (8000)")
    parser.add_argument("--to", type=Path, metavar="DIR", help="where to build (build/site; with --check, nowhere)")
    arguments = parser.parse_args()
    stale = diagrams.main(["--check"] if arguments.check else [])
    if stale:
        return stale
    if arguments.serve:
        return mkdocs("serve", "--strict", "--dev-addr", f"127.0.0.1:{arguments.port}")
    if arguments.check and arguments.to is None:
        with tempfile.TemporaryDirectory() as nowhere:
            return mkdocs("build", "--strict", "--site-dir", nowhere)
    folder = arguments.to or ROOT / "build" / "site"
    status = mkdocs("build", "--strict", "--site-dir", folder)
    if status == 0:
        print(f"the site is in {folder / 'index.html'}; to search in it: ./run docs --serve", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
