"""What `./run bench simulate` makes of what it measures, and that it measures whole searches only."""

from collections.abc import Callable, Generator, Iterable

import pytest

from benchmarks.simulate import Round, Taken, play
from phalanx.common.errors import PhalanxError
from phalanx_proof.search.worker_processes import Done, Made, Work
from phalanx_proof.sim.options import Profile
from support.searches import HereAndNow


def test_what_spark_takes_is_a_part_of_the_rate_without_it() -> None:
    measured = Round(Taken(clock_s=9.0, cpu_s=18.0), Taken(clock_s=10.0, cpu_s=18.0))
    assert measured.by_clock == pytest.approx(0.1)
    assert measured.by_cpu == 0


def test_a_crew_that_does_not_play_everything_is_not_measured() -> None:
    class Lazy(HereAndNow):
        def each(
            self, function: Callable[[Work], Made], pieces: Iterable[Work]
        ) -> Generator[Done[Work, Made], None, None]:
            for piece in pieces:
                yield Done(piece, error="no time")

    taken = play(HereAndNow(), Profile.MEMBERSHIP, range(2))
    assert taken.clock_s > 0
    assert taken.cpu_s >= 0
    with pytest.raises(PhalanxError, match=r"0 of 2 histories were played: .*no time"):
        play(Lazy(), Profile.MEMBERSHIP, range(2))
