"""The command `phalanx`, also as `python -m phalanx`."""

import os
import sys

from phalanx.runtime.process.signals import end_in_order


def main() -> None:
    """Run the command line. It needs packages of its own, which a service that only uses the grid does without.

    A member that is told to stop while they are loaded holds nothing yet, and ends as one that has not joined.
    """
    if sys.argv[1:2] == ["member"]:
        end_in_order(status=0)
        from phalanx.cli.plain_member import run_plain_line

        run_plain_line(sys.argv[2:])
    try:
        from phalanx.cli.main import main as run
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich", "typer"):
            raise
        print(
            f"phalanx: the command needs {error.name}, which is not installed: pip install 'phalanx[cli]'",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    run()


if __name__ == "__main__":
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
        del sys.path[0]  # `python -m` looks into the present folder first: a file there must not stand for a package
    main()
