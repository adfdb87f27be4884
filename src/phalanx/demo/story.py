"""The demo from the first member to the last comparison: what is done, in which order, and whether it held.

Each chapter adds what it found to the report. What does not hold becomes a line in `differences`, and the story goes on
where that makes sense, for a later chapter may show why.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table as Rows

from phalanx.client.sync import Client
from phalanx.common.errors import PhalanxError
from phalanx.common.ids import address_of
from phalanx.demo import dataset
from phalanx.demo.cluster import CLUSTER, DemoCluster, DemoStage
from phalanx.demo.compare import WINDS, find_examples, fingerprint, mean_delays, sample
from phalanx.demo.dataset import NULL, File, unpack
from phalanx.demo.report import DemoReport, Fall, MapResult, MemberListSeen, QuestionResult, WriterResult
from phalanx.demo.writer import MAP, Writer, check

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WRITE_FOR_S = 1.5
"""How long the writer has a whole cluster before the first kill, and after the last."""
CORES = min(os.cpu_count() or 2, 8)
SPARK = {
    "spark.driver.memory": "1g",
    # For a program that runs a minute on few cores: no threads for collecting, and no time for compiling well.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.io.tmpdir={folder}",
    "spark.local.dir": "{folder}",
    "spark.sql.warehouse.dir": "{folder}/warehouse",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(CORES),
}
SHOWN = 5
"""Groups of the question that differ and are told."""

T = TypeVar("T")


class DemoStory:
    """One run."""

    def __init__(self, console: Console, folder: Path, report: DemoReport) -> None:
        """`report`: with the sizes set; the run fills in the rest."""
        self._console, self._folder, self.report = console, folder, report
        self._cluster = DemoCluster(folder, report.backup_count, report.partitions)
        self._files: list[File] = []
        self._csv: dict[str, DataFrame] = {}
        self._grid: dict[str, DataFrame] = {}

    def run(self) -> None:
        """Tell it all. No member and no session of Spark is left when this returns or raises."""
        report, began = self.report, time.monotonic()
        with ExitStack() as stack:
            stack.callback(self._cluster.stop)
            try:
                self._start_members()
                self._load(stack)
                writer = self._write_while_members_die()
                self._read_back()
                self._ask()
                self._check_writes(writer)
            except PhalanxError as error:
                self._differs([str(error)])
                for log in sorted(self._folder.glob("member-*.log")):
                    self._block([f"{log.name}: {line}" for line in log.read_text().splitlines()[-3:]])
        report.ok = not report.differences
        report.seconds = round(time.monotonic() - began, 1)

    # --- chapters --------------------------------------------------------------------------------------------------

    def _start_members(self) -> None:
        count = self.report.members
        self._heading(1, f"{'One member' if count == 1 else f'{count} members'} on this machine, nothing beside")
        with self._console.status("starting members"):
            self._cluster.start(count)
            self._cluster.wait(DemoStage.ONE_LIST)
        self.report.member_list = MemberListSeen.of(self._cluster.view())
        if count > 1:
            self._good(f"they found each other through one seed, {self._cluster.living[0].address}")
        self._block(self.report.member_list.lines)

    def _load(self, stack: ExitStack) -> None:
        report = self.report
        self._heading(2, 'Spark writes five files into five maps: df.write.format("phalanx")')
        with self._console.status("unpacking the files and starting Spark"):
            self._files = unpack(self._folder, dataset.find_files())
            spark = _start_spark(self._folder, stack)
            for file in self._files:
                self._spark(f"read the file {file.name}", lambda: self._look_at(spark, file))  # noqa: B023  # called at once
            # Then Spark's Python workers have started.
            self._write(self._files[0], rows=0)
            self._spark("read an empty map", self._grid[self._files[0].name].count)
        with self._bars() as bars:
            for file in self._files:
                bar, began = bars.add_task(file.name, total=None, note=""), time.monotonic()
                self._write(file)
                report.maps.append(MapResult(file.name, file.rows, round(time.monotonic() - began, 3)))
                _fill(bars, bar, file.rows, report.maps[-1].write_s)
        report.rows = sum(file.rows for file in self._files)
        took_s = sum(result.write_s for result in report.maps)
        report.rows_per_s_in = round(report.rows / took_s)
        self._good(f"{report.rows:,} rows in {took_s:.1f} s: {report.rows_per_s_in:,} rows/s")

    def _look_at(self, spark: SparkSession, file: File) -> None:
        csv = spark.read.csv(str(file.path), header=True, inferSchema=True, nullValue=NULL, mode="FAILFAST")
        reader = spark.read.format("phalanx").options(**self._options(file), ifMissing="empty")
        self._csv[file.name], self._grid[file.name] = csv, reader.schema(csv.schema).load()

    def _options(self, file: File) -> dict[str, str]:
        return {"members": self._cluster.addresses, "cluster": CLUSTER, "map": file.name, "key": ",".join(file.key)}

    def _write(self, file: File, rows: int | None = None) -> None:
        frame = self._csv[file.name] if rows is None else self._csv[file.name].limit(rows)
        writer = frame.write.format("phalanx").options(**self._options(file)).mode("append")
        self._spark(f"write the map {file.name}", writer.save)

    def _write_while_members_die(self) -> Writer:
        report = self.report
        self._heading(3, f"A program keeps writing to a sixth map, {MAP}{_killing(report.killed)}")
        writer = Writer(self._cluster.addresses, CLUSTER)
        writer.start()
        with self._console.status("writing") as status:

            def tick() -> None:
                status.update(f"{writer.acknowledged:,} writes acknowledged")

            _pass(WRITE_FOR_S, tick)
            self._cluster.wait(DemoStage.REDUNDANT, tick)
            self._good(f"{writer.acknowledged:,} writes acknowledged, every partition has all its replicas")
            for _ in range(report.killed):
                report.falls.append(self._cluster.kill_largest_owner(writer, tick))
                self._tell_fall(report.falls[-1])
            _pass(WRITE_FOR_S, tick)
            writer.stop()
        if writer.error is not None:
            self._differs([f"the writer gave up: {writer.error}"])
        report.ms_to_write = max((ms for fall in report.falls if (ms := fall.write_ms) is not None), default=None)
        report.ms_to_redundancy = max(
            (ms for fall in report.falls if (ms := fall.redundant_ms) is not None), default=None
        )
        return writer

    def _tell_fall(self, fall: Fall) -> None:
        lines = fall.member_list.lines if fall.member_list is not None else [""]
        master = ", the master" if fall.was_master else ""
        owned = f"owned {fall.owned} of {fall.partitions} partitions"
        self._console.print(f"   [red]†[/] SIGKILL to {address_of(fall.member)}{master}; it {owned}", soft_wrap=True)
        told = [
            (
                fall.list_ms,
                f"the others agree: {lines[0].rstrip(' [')}",
                "the others did not agree on a list without it",
            ),
            (fall.owners_ms, "every partition has an owner again", "some partition stayed without a living owner"),
            (
                fall.write_ms,
                "the first write is acknowledged again for a key of the dead member",
                "no write was acknowledged for a key that it owned",
            ),
            (
                fall.redundant_ms,
                "backups are rebuilt: every partition has all its replicas",
                "backups were not rebuilt",
            ),
        ]
        for ms, text in sorted(
            ((ms, happened) for ms, happened, _ in told if ms is not None), key=lambda each: each[0]
        ):
            self._good(f"[cyan]{ms:>6,} ms[/]  {text}")
        self._block(lines)
        self._differs([f"after {fall.member} was killed, {missed}" for ms, _, missed in told if ms is None])

    def _read_back(self) -> None:
        report = self.report
        self._heading(4, 'Spark reads all maps back, spark.read.format("phalanx"), and compares with the files')
        with self._bars() as bars:
            for file, result in zip(self._files, report.maps, strict=True):
                name, key = file.name, file.key
                csv, grid = self._csv[name], self._grid[name]
                bar, began = bars.add_task(name, total=None, note=""), time.monotonic()
                there = self._spark(f"read {name}", lambda: fingerprint(grid, key))  # noqa: B023  # called at once
                result.read_s, result.rows_read = round(time.monotonic() - began, 3), there[0]
                here = self._spark(f"read {name}", lambda: fingerprint(csv, key))  # noqa: B023  # called at once
                result.equal = (file.rows, here) == (there[0], there)
                _fill(bars, bar, there[0], result.read_s)
                if not result.equal:
                    counts = (
                        f"{file.rows:,} rows in the file, {there[0]:,} in the map, Spark read {here[0]:,} from the file"
                    )
                    shown = self._spark("look for rows that differ", lambda: find_examples(csv, grid))  # noqa: B023
                    self._differs([f"{name}: {counts}", *(f"{name}: {text}" for text in shown)])
        took_s = sum(result.read_s for result in report.maps)
        report.rows_per_s_out = round(sum(result.rows_read for result in report.maps) / took_s)
        if all(result.equal for result in report.maps):
            self._good(f"{report.rows:,} rows and every column of all maps equal: {report.rows_per_s_out:,} rows/s")

    def _ask(self) -> None:
        with self._console.status("asking for the mean arrival delay by airline and by wind speed"):
            grid = self._spark("answer from the grid", lambda: mean_delays(self._grid))
            files = self._spark("answer from the files", lambda: mean_delays(self._csv))
        found = [
            f"mean delay of {airline} at {wind}+ mph: {files.get((airline, wind))} from the files, "
            f"{grid.get((airline, wind))} from the grid"
            for airline, wind in sorted(files.keys() | grid.keys())
            if files.get((airline, wind)) != grid.get((airline, wind))
        ]
        self.report.question = QuestionResult(len(files), not found, sample(grid))
        self._differs(found[:SHOWN] + ([f"... and {len(found) - SHOWN} more groups"] if len(found) > SHOWN else []))
        if not found:
            self._good(
                f"mean arrival delay by airline and wind speed, {len(files)} groups joined from three maps: equal"
            )
            rows = Rows(box=None, padding=(0, 0, 0, 3), pad_edge=False)
            rows.add_column("minutes late, by wind")
            for wind in WINDS:
                rows.add_column(
                    f"{wind}+ mph" if wind == WINDS[-1] else f"{wind}-{wind + WINDS[1]} mph", justify="right"
                )
            for row in self.report.question.sample:
                rows.add_row(*row)
            self._console.print(Padding(rows, (0, 0, 0, 5)), style="dim")

    def _check_writes(self, writer: Writer) -> None:
        self._heading(5, "What was acknowledged is there")
        with Client(self._cluster.addresses, cluster=CLUSTER) as grid:
            missing, wrong = check(writer, grid)
        written = (writer.acknowledged, len(writer.values))
        self.report.writer = WriterResult(*written, writer.repeated, len(missing), len(wrong))
        if missing:
            self._differs([f"{MAP}: {len(missing):,} acknowledged keys are missing, such as {missing[0]}"])
        if wrong:
            self._differs([f"{MAP}: {len(wrong):,} keys lost their last acknowledged write, such as {wrong[0]}"])
        if not missing and not wrong:
            self._good(f"all {written[0]:,} acknowledged writes to {written[1]:,} keys, none lost")

    # --- helpers ---------------------------------------------------------------------------------------------------

    def _spark(self, what: str, work: Callable[[], T]) -> T:
        """Let Spark work. Raises `PhalanxError` with one line of what Spark said."""
        try:
            return work()
        except PhalanxError:
            raise
        except Exception as error:
            raise PhalanxError(f"Spark could not {what}: {_in_short(error)}") from error

    @contextmanager
    def _bars(self) -> Iterator[Progress]:
        """Show a bar for each map, which pulses until it is filled."""
        columns = (TextColumn("     {task.description:<8}"), BarColumn(32), TextColumn("[dim]{task.fields[note]}"))
        with Progress(*columns, console=self._console, disable=not self._console.is_terminal) as bars:
            yield bars

    def _heading(self, number: int, text: str) -> None:
        self._console.print(f"\n[bold cyan]{number}[/]  [bold]{text}[/]")

    def _good(self, text: str) -> None:
        self._console.print(f"   [green]✓[/] {text}", soft_wrap=True)

    def _differs(self, lines: list[str]) -> None:
        self.report.differences += lines
        for line in lines:
            self._console.print(f"   [red]✗ {escape(line)}[/]", soft_wrap=True)

    def _block(self, lines: list[str]) -> None:
        for line in lines:
            self._console.print(f"     {line}", style="dim", markup=False, soft_wrap=True)


def _start_spark(folder: Path, stack: ExitStack) -> SparkSession:
    """Start Spark, which ends with the stack; its Java process ends with this one."""
    from phalanx.spark import session

    try:
        with _stderr_into(folder / "spark.log"):
            spark = session(f"local[{CORES}]", **{name: text.format(folder=folder) for name, text in SPARK.items()})
    except Exception as error:  # of Java, of the launcher, of the network: whatever kind it is
        raise PhalanxError(f"Spark did not start: {_in_short(error)}") from error

    def stop() -> None:
        with suppress(Exception):  # it may not answer any more
            spark.stop()

    stack.callback(stop)
    return spark


@contextmanager
def _stderr_into(log: Path) -> Iterator[None]:
    """What is started meanwhile writes its stderr into a file: Java says much at its start, and when it is interrupted."""
    kept = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _in_short(error: Exception) -> str:
    """What an error of Spark says in one line: ours, where one of ours is in it, without the stacks around it."""
    from phalanx.spark.errors import told_in

    return str(told_in(str(error)) or " ".join(str(error).split())[:300])


def _fill(bars: Progress, bar: TaskID, rows: int, took_s: float) -> None:
    bars.update(bar, total=1, completed=1, note=f"{rows:>7,} rows, {took_s:.1f} s")


def _pass(seconds: float, tick: Callable[[], None]) -> None:
    """Let time pass, for the writer."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        tick()
        time.sleep(0.05)


def _killing(count: int) -> str:
    if count == 0:
        return ", and nobody is killed"
    who = "the member that owns most is" if count == 1 else f"{count} members, one after the other, are"
    return f", while {who} killed"
