"""A disk that has nothing after a power cut of what was not synced."""

from random import Random

from phalanx_proof.sim.cluster.sector_disk import SectorDisk


class LosesWhatIsNotSynced(SectorDisk):
    """Has nothing after a power cut of what was not synced."""

    def cut_power(self, rng: Random) -> None:
        self._written.clear()
