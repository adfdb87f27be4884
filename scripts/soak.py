"""Plays everything that takes longer than the test command may: `./run soak`.

What there is to play is a list of jobs, each a command that ends by itself, in minutes at most. Kinds of jobs take turns, so that a
run of any length gives each its share. What was played is kept in `.soak/`, by the state of the checkout: a run that
was ended, or that had no time left, goes on where it ended. When all is played once, a run with `--minutes` goes on with
histories and faults that no round before had; one without ends.

    ./run soak                                  all of it, once (hours)
    ./run soak --minutes 30                     as much as half an hour has room for
    ./run soak --only histories,chaos           these kinds
    ./run soak --only histories:staging         these jobs: what their names begin with
    ./run soak --list                           the jobs of the first round, and what became of them
"""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from threading import Lock

from phalanx_proof.sim.options import Profile

ROOT = Path(__file__).resolve().parent.parent
TURN_S = 600.0
"""How long a kind begins jobs before another has its turn."""
JOB_LIMIT_S = 3_600.0
"""A job that takes longer is ended, and counts as failed: each is cut to take minutes."""
BLOCK = 50
"""Histories of one job."""
HISTORIES = 1_000
"""Histories of each profile in one round."""
WITHOUT_PROOF = (Profile.WINDOW, Profile.QUIET, Profile.BENCH)
"""Profiles that measure: what leases are for, the rate, a cluster without faults."""
PROFILES = tuple(each for each in Profile if each not in WITHOUT_PROOF)
EXPLORATIONS = ((2, 12), (3, 8), (4, 6))
"""Members and steps of explorations from every start."""
CHAOS_RUNS = 5
DURABLE_ROUNDS = 50
FUZZ_MINUTES = 5
SIMULATIONS = "tests/sim"
"""Tests that `./run quick` does not play."""
FUZZ_TARGETS = (
    "archive", "audit-page", "codec", "compact", "conditions", "config", "event-log", "functions", "glob", "greeting", "hazelcast", "http",
    "native-session", "records", "resp", "rows", "where",
)  # fmt: skip
"""Those of tests/hostile/fuzzing, by name; a test compares them."""


@dataclass(frozen=True)
class Job:
    """One command. Its name begins with its kind, and is the same in every run of the same checkout.

    All jobs of a kind are alone, or none is.
    """

    name: str
    command: tuple[str, ...]
    is_alone: bool = False
    """Starts processes of its own that judge one another by time: nothing else runs beside it."""

    @property
    def kind(self) -> str:
        return self.name.partition(":")[0]


@dataclass(frozen=True)
class Outcome:
    """What became of a job."""

    name: str
    status: int
    seconds: float
    log: str
    """Where its output is kept, below the folder; empty for one that passed."""


class Records:
    """What was played, and how it ended: a line of JSON for each job in `played.jsonl`, and the output of what failed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._path = folder / "played.jsonl"
        self.outcomes: dict[str, Outcome] = {}
        if self._path.is_file():
            for line in self._path.read_text(encoding="utf-8").splitlines():
                # A run that was ended in the middle of a line has not recorded that job.
                if line.endswith("}"):
                    outcome = Outcome(**json.loads(line))
                    self.outcomes[outcome.name] = outcome

    def add(self, outcome: Outcome) -> None:
        self.outcomes[outcome.name] = outcome
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"\n{json.dumps(asdict(outcome))}")


def histories(python: str, round_number: int) -> Iterator[Job]:
    """Blocks of simulated histories: the profiles one after the other, so that each has its first block early."""
    first = round_number * HISTORIES
    for start in range(first, first + HISTORIES, BLOCK):
        for profile in PROFILES:
            seeds = f"{start}:{start + BLOCK}"
            command = (python, "-m", "phalanx", "simulate", "--seeds", seeds, "--profile", profile)
            yield Job(f"histories:{profile}:{seeds}", command)


def explorations(python: str) -> Iterator[Job]:
    for members, depth in EXPLORATIONS:
        command = (python, "-m", "phalanx", "simulate", "--explore", str(members), "--depth", str(depth))
        yield Job(f"explorations:{members} members:{depth} steps", command)


def chaos(python: str, round_number: int) -> Iterator[Job]:
    for seed in range(1 + round_number * CHAOS_RUNS, 1 + (round_number + 1) * CHAOS_RUNS):
        yield Job(f"chaos:{seed}", (python, "-m", "phalanx", "chaos", "--seed", str(seed)), is_alone=True)
        durable = (python, "-m", "phalanx", "chaos", "--durable", "--rounds", str(DURABLE_ROUNDS), "--seed", str(seed))
        yield Job(f"chaos:durable:{seed}", durable, is_alone=True)


def fuzzing(python: str, round_number: int) -> Iterator[Job]:
    """A job for each target of the fuzzer."""
    command = (python, "scripts/fuzz.py", "--minutes", str(FUZZ_MINUTES), "--seed", f"soak {round_number}")
    for target in FUZZ_TARGETS:
        yield Job(f"fuzz:{target}", (*command, "--target", target))


def long_tests(python: str, ids: Iterable[str], pure: Sequence[str]) -> Iterator[Job]:
    """A job for each file of tests that are marked long. `pure` are the folders whose tests start no processes."""
    for file in dict.fromkeys(test.partition("::")[0] for test in ids):
        command = (python, "-m", "pytest", "-q", "-m", "long", "--durations=3", file)
        if file.startswith(tuple(pure)):
            yield Job(f"tests:{file}", command)
        else:
            yield Job(f"processes:{file}", command, is_alone=True)


def opened_files(python: str, folders: Iterable[str]) -> Iterator[Job]:
    """A job for each file of tests that `./run quick` may pass over: does it open nothing of which its digest does not know?"""
    for path in sorted(path for folder in folders for path in (ROOT / folder).glob("test_*.py")):
        file = path.relative_to(ROOT).as_posix()
        yield Job(f"opened:{file}", (python, "-m", "pytest", "-q", "-m", "not long", "--opened-files", file))


def examples(python: str, ids: Iterable[str], round_number: int) -> Iterator[Job]:
    """A job for each file of tests that Hypothesis gives examples: many, and new ones in each round."""
    for file in dict.fromkeys(test.partition("::")[0] for test in ids):
        command = (python, "-m", "pytest", "-q", "-m", "hypothesis", "--hypothesis-profile=soak", "--timeout=0", file)
        yield Job(f"examples:{file}:{round_number}", command)


def mutants(python: str, files: Iterable[Path]) -> Iterator[Job]:
    for file in sorted(files):
        yield Job(f"mutants:{file.stem}", (python, "-m", "tests.support.mutation", "--file", file.name))


def find_tests(python: str, mark: str) -> list[str]:
    """The ids of the tests with this mark. Raises `SystemExit` if they cannot be collected."""
    command = [python, "-m", "pytest", "--collect-only", "-q", "-m", mark, "tests"]
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if collected.returncode:
        raise SystemExit(f"soak: the tests cannot be collected:\n{collected.stdout}{collected.stderr}")
    return [line for line in collected.stdout.splitlines() if line.startswith("tests/")]


def all_jobs(python: str, round_number: int, pure: Sequence[str]) -> list[Job]:
    """What a round plays. Later rounds only have what is drawn anew: the rest would show the same again."""
    drawn = [
        *histories(python, round_number),
        *chaos(python, round_number),
        *fuzzing(python, round_number),
        *examples(python, find_tests(python, "hypothesis"), round_number),
    ]
    if round_number:
        return drawn
    tests = long_tests(python, find_tests(python, "long"), pure)
    opened = opened_files(python, [folder for folder in pure if folder != SIMULATIONS])
    return [
        *drawn,
        *tests,
        *opened,
        *explorations(python),
        *mutants(python, (ROOT / "tests" / "mutants").glob("*.toml")),
    ]


def state_of_checkout() -> str:
    """A name for what is checked out, with what is changed: outcomes of another state say nothing about this one."""

    def git(*arguments: str) -> bytes:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout

    try:
        changed = git("diff", "HEAD")
        commit = git("rev-parse", "--short=12", "HEAD").decode().strip()
    except (OSError, subprocess.CalledProcessError):
        return "unversioned"
    return f"{commit}-{hashlib.sha256(changed).hexdigest()[:8]}" if changed else commit


def in_turns(jobs: Sequence[Job]) -> Iterator[list[Job]]:
    """The jobs that are left of each kind, in the order in which kinds take turns, until none is left.

    Whoever takes a list removes from it what is begun.
    """
    queues: dict[str, list[Job]] = {}
    for job in jobs:
        queues.setdefault(job.kind, []).append(job)
    while queues:
        for kind in list(queues):
            if queues[kind]:
                yield queues[kind]
            else:
                del queues[kind]


class Player:
    """Plays jobs on all cores, until they are all played or the time is over."""

    def __init__(self, records: Records, cores: int, ends_at: float) -> None:
        self._records = records
        self._cores = cores
        self._ends_at = ends_at
        """Of the monotonic clock: no job begins later."""
        self._lock = Lock()
        """Guards both below: a job that is just being started when the run ends would be ended by nobody."""
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_ended = False

    def play(self, jobs: Sequence[Job], turn_s: float = TURN_S) -> bool:
        """Whether all were begun and have ended before the time was over."""
        left = [job for job in jobs if job.name not in self._records.outcomes]
        with ThreadPoolExecutor(self._cores) as pool:
            try:
                for queue in in_turns(left):
                    if time.monotonic() >= self._ends_at:
                        return False
                    self._play_turn(pool, queue, min(time.monotonic() + turn_s, self._ends_at))
            except BaseException:
                # Else the pool would wait for jobs of minutes before the run ends.
                with self._lock:
                    self._is_ended = True
                    for process in self._running:
                        os.killpg(process.pid, signal.SIGTERM)
                raise
        return True

    def _play_turn(self, pool: ThreadPoolExecutor, queue: list[Job], ends_at: float) -> None:
        most = 1 if queue[0].is_alone else self._cores
        # At least one in each turn, however short: else a run could go round without end.
        under_way = {pool.submit(self._run, queue.pop(0))}
        while under_way:
            while queue and time.monotonic() < ends_at and len(under_way) < most:
                under_way.add(pool.submit(self._run, queue.pop(0)))
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()

    def _run(self, job: Job) -> None:
        log = self._records.folder / f"{hashlib.sha256(job.name.encode()).hexdigest()[:12]}.log"
        begun = time.monotonic()
        with log.open("wb") as output:
            with self._lock:
                if self._is_ended:
                    return
                # A session of its own: what a job leaves behind when it is ended goes with it.
                process = subprocess.Popen(
                    job.command,
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
                self._running.add(process)
            try:
                status = process.wait(JOB_LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                status = process.wait()
            finally:
                with self._lock:
                    self._running.discard(process)
        seconds = time.monotonic() - begun
        if self._is_ended:
            return
        if status == 0:
            log.unlink()
        self._records.add(Outcome(job.name, status, round(seconds, 1), log.name if status else ""))
        print(f"{'passed' if status == 0 else 'FAILED'}  {seconds:7.1f} s  {job.name}", flush=True)


def table(jobs: Sequence[Job], records: Records) -> str:
    """What was played of each group of jobs, and for each failure the command that repeats it."""
    groups: dict[str, list[Outcome | None]] = {}
    for job in jobs:
        group = ":".join(job.name.split(":")[: 2 if job.kind == "histories" else 1])
        groups.setdefault(group, []).append(records.outcomes.get(job.name))
    lines = [f"{'kind':28}{'played':>8}{'of':>6}{'failed':>8}{'minutes':>9}"]
    for group, outcomes in groups.items():
        played = [outcome for outcome in outcomes if outcome]
        failed = sum(outcome.status != 0 for outcome in played)
        minutes = sum(outcome.seconds for outcome in played) / 60
        lines.append(f"{group:28}{len(played):8}{len(outcomes):6}{failed:8}{minutes:9.1f}")
    for job in jobs:
        outcome = records.outcomes.get(job.name)
        if outcome and outcome.status:
            lines.append(f"\nFAILED with status {outcome.status}: {job.name}")
            lines.append(f"    ./run python {' '.join(job.command[1:])}")
            lines.append(f"    what it printed: {records.folder / outcome.log}")
    return "\n".join(lines)


def chosen(jobs: Iterable[Job], only: Sequence[str]) -> list[Job]:
    """Those whose names begin with one of `only`; all where it is empty."""
    return [job for job in jobs if not only or job.name.startswith(tuple(only))]


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run soak", description="Play what takes longer than the tests may.")
    parser.add_argument(
        "--minutes", type=float, metavar="M", help="begin no job after so long (default: play all once)"
    )
    parser.add_argument("--only", default="", metavar="NAME,…", help="only jobs whose names begin with one of these")
    parser.add_argument("--again", action="store_true", help="forget what was played of this state of the checkout")
    parser.add_argument("--list", action="store_true", help="print the jobs of the first round, and play none")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, metavar="N", help="play so many at a time")
    parser.add_argument("--pure", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    only = [name for name in arguments.only.split(",") if name]
    folder = ROOT / ".soak" / state_of_checkout()
    if arguments.again and folder.is_dir():
        (folder / "played.jsonl").unlink(missing_ok=True)
    records = Records(folder)
    # Whoever ends the run ends its jobs, which are in sessions of their own.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    ends_at = time.monotonic() + 60 * arguments.minutes if arguments.minutes else float("inf")
    player = Player(records, arguments.cores, ends_at)
    played: list[Job] = []
    for round_number in count():
        jobs = chosen(all_jobs(sys.executable, round_number, arguments.pure.split()), only)
        if not jobs:
            # Of what is not drawn anew there is no second round.
            if round_number == 0:
                parser.error(f"no job's name begins with {arguments.only!r}: see ./run soak --list")
            break
        played += jobs
        if arguments.list:
            break
        is_over = not player.play(jobs)
        if is_over or not arguments.minutes:
            break
    if arguments.list:
        for job in played:
            outcome = records.outcomes.get(job.name)
            print(f"{'-' if outcome is None else 'FAILED' if outcome.status else 'passed':8}{job.name}")
        return 0
    print(table(played, records))
    return int(any(outcome.status for job in played if (outcome := records.outcomes.get(job.name))))


if __name__ == "__main__":
    sys.exit(main())
