"""A member whose disk says that it has synced, and has not: what `phalanx chaos --durable` must find."""

import sys
from pathlib import Path

from phalanx.runtime.disk.files import RealFiles
from phalanx_proof.chaos.durable.member import run
from phalanx_proof.chaos.durable.power import PowerFiles


class LyingFiles(PowerFiles):
    """A power cut takes what the member takes for synced."""

    def sync_data(self, descriptor: int) -> None:
        RealFiles.sync_data(self, descriptor)


if __name__ == "__main__":
    run(Path(sys.argv.pop(1)), LyingFiles)
