"""The demo from the first member to the last comparison: what is done, in which order, and whether it held.

Each chapter adds what it found to the report. What does not hold becomes a line in `differences`, and the story goes on
where that makes sense, because a later chapter can show why.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from phalanx.client.sync import Client
from phalanx.common.errors import PhalanxError
from phalanx.common.ids import address_of
from phalanx.runtime.process.signals import delayed_signals
from phalanx_spark.connector import session
from phalanx_spark.connector.errors import find_error
from phalanx_spark.demo import dataset
from phalanx_spark.demo.cluster import CLUSTER, DemoCluster, DemoStage
from phalanx_spark.demo.compare import WINDS, find_examples, fingerprint, mean_delays, read_csv, sample
from phalanx_spark.demo.report import STEPS, DemoReport, Fall, MapResult, QuestionResult, WriterResult
from phalanx_spark.demo.writer import MAP, Writer, check

WRITE_FOR_S = 1.0
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
"""The most groups of the question that are shown if they differ."""


class DemoStory:
    """One run."""

    def __init__(self, console: Console, folder: Path, report: DemoReport) -> None:
        """`report`: with the sizes set; the run fills in the rest."""
        self._console, self._folder, self.report = console, folder, report
        self._files: list[dataset.CsvFile] = []
        self._csv: dict[str, DataFrame] = {}
        self._grid: dict[str, DataFrame] = {}

    def run(self) -> None:
        """Run the demo, and print each step. No member and no session of Spark is left when this returns or raises."""
        report, began = self.report, time.monotonic()
        with ExitStack() as stack, self._console.status("at work"):
            try:
                self._load(self._start(stack))
                writer = self._write_while_members_die()
                self._read_back()
                self._ask()
                self._check_writes(writer)
            except Exception as error:  # of Spark, of Java, of the network: the report says it
                ours = error if isinstance(error, PhalanxError) else find_error(str(error))
                self._differs(str(ours or f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"))
                for log in sorted(self._folder.glob("member-*.log")):
                    self._show(f"{log.name}: {line}" for line in log.read_text().splitlines()[-3:])
        report.ok = not report.differences
        report.seconds = round(time.monotonic() - began, 1)

    # --- chapters --------------------------------------------------------------------------------------------------

    def _start(self, stack: ExitStack) -> SparkSession:
        """Start the members, and Spark meanwhile."""
        count = self.report.members
        self._heading(1, f"{'One member' if count == 1 else f'{count} members'} on this machine, nothing beside")
        with ThreadPoolExecutor(1) as beside:  # the members: signals of Java's start come to this thread
            cluster = beside.submit(DemoCluster, stack, self._folder, self.report)
            began = time.monotonic()
            spark = _start_spark(self._folder, stack)
            self.report.spark_start_s = time.monotonic() - began
            self._cluster = cluster.result()
        self._cluster.wait(DemoStage.ONE_LIST)
        self.report.member_list = self._cluster.member_list()
        self._good("they found each other through one seed" if count > 1 else "it serves")
        self._show(self.report.member_list.lines)
        self._heading(2, 'Spark writes five files into five maps: df.write.format("phalanx")')
        return spark

    def _load(self, spark: SparkSession) -> None:
        report, source = self.report, dataset.find_files()
        self._files = [dataset.unpack(name, source, self._folder) for name in dataset.TABLES]
        for file in self._files:
            self._csv[file.name] = read_csv(spark, file.path, file.table.schema)
            began = time.monotonic()
            self._write(file)
            report.maps.append(MapResult(file.name, file.rows, round(time.monotonic() - began, 3)))
            reader = spark.read.format("phalanx").options(**self._options(file))
            self._grid[file.name] = reader.schema(file.table.schema).load()
        first, *others = report.maps  # Spark's Python processes start with the first
        report.spark_start_s += first.write_s
        report.rows = sum(file.rows for file in self._files)
        took_s = sum(result.write_s for result in others)
        report.rows_per_s_in = round((report.rows - first.rows) / took_s)
        self._good(f"{report.rows:,} rows in {took_s:.1f} s: {report.rows_per_s_in:,} rows/s")

    def _options(self, file: dataset.CsvFile) -> dict[str, str]:
        return {
            "members": self._cluster.addresses,
            "cluster": CLUSTER,
            "map": file.name,
            "key": ",".join(file.table.key),
        }

    def _write(self, file: dataset.CsvFile) -> None:
        self._csv[file.name].write.format("phalanx").options(**self._options(file)).mode("append").save()

    def _write_while_members_die(self) -> Writer:
        report = self.report
        killing = {0: "nobody is", 1: "the member that owns most is"}
        who = killing.get(report.killed, f"{report.killed} members, one after the other, are")
        self._heading(3, f"A program keeps writing to a sixth map, {MAP}, while {who} killed")
        writer = Writer(self._cluster.addresses, CLUSTER)
        writer.start()
        time.sleep(WRITE_FOR_S)
        self._cluster.wait(DemoStage.REDUNDANT)
        self._good(f"{writer.acknowledged:,} writes acknowledged, every partition has all its replicas")
        for _ in range(report.killed):
            report.falls.append(self._cluster.kill_largest_owner(writer))
            self._tell_fall(report.falls[-1])
        time.sleep(WRITE_FOR_S)
        writer.stop()
        if writer.error is not None:
            self._differs(f"the writer gave up: {writer.error}")
        report.ms_to_write = max((fall.write_ms for fall in report.falls), default=None)
        report.ms_to_redundancy = max((fall.redundant_ms for fall in report.falls), default=None)
        return writer

    def _tell_fall(self, fall: Fall) -> None:
        master = ", the master" if fall.was_master else ""
        owned = f"owned {fall.owned} of {fall.partitions} partitions"
        self._console.print(f"   [red]†[/] SIGKILL to {address_of(fall.member)}{master}; it {owned}", soft_wrap=True)
        for ms, step in sorted((getattr(fall, step), step) for step in STEPS):
            self._good(f"{ms:>6,} ms  {STEPS[step]}")
        self._show(fall.member_list.lines)

    def _read_back(self) -> None:
        report = self.report
        self._heading(4, 'Spark reads all maps back, spark.read.format("phalanx"), and compares with the files')
        for file, result in zip(self._files, report.maps, strict=True):
            name, csv, grid = file.name, self._csv[file.name], self._grid[file.name]
            began = time.monotonic()
            there = fingerprint(grid, file.table.key)
            result.read_s, result.rows_read = round(time.monotonic() - began, 3), there[0]
            here = fingerprint(csv, file.table.key)
            result.equal = (file.rows, here) == (there[0], there)
            if not result.equal:
                counts = (
                    f"{file.rows:,} rows in the file, {there[0]:,} in the map, Spark read {here[0]:,} from the file"
                )
                self._differs(*(f"{name}: {text}" for text in (counts, *find_examples(csv, grid))))
        first, *others = report.maps
        report.spark_start_s = round(report.spark_start_s + first.read_s, 1)
        took_s = sum(result.read_s for result in others)
        report.rows_per_s_out = round(sum(result.rows_read for result in others) / took_s)
        if all(result.equal for result in report.maps):
            self._good(f"{report.rows:,} rows and every column of all maps equal: {report.rows_per_s_out:,} rows/s")

    def _ask(self) -> None:
        grid = mean_delays(self._grid)
        files = mean_delays(self._csv)
        found = [
            f"mean delay of {airline} at {wind}+ mph: {files.get((airline, wind))} from the files, "
            f"{grid.get((airline, wind))} from the grid"
            for airline, wind in sorted(files.keys() | grid.keys())
            if files.get((airline, wind)) != grid.get((airline, wind))
        ]
        self.report.question = QuestionResult(len(files), not found, sample(grid))
        more = len(found) - SHOWN
        self._differs(*found[:SHOWN], *([f"... and {more} more groups"] if more > 0 else []))
        if not found:
            self._good(f"mean arrival delay by airline and wind, {len(files)} groups joined from three maps: equal")
            rows = Table("     minutes late, by wind in mph", box=None, pad_edge=False, style="dim")
            for wind in WINDS:
                rows.add_column(f"{wind}+", justify="right")
            for airline, *delays in self.report.question.sample:
                rows.add_row(f"     {airline}", *delays)
            self._console.print(rows)

    def _check_writes(self, writer: Writer) -> None:
        self._heading(5, "What was acknowledged is there")
        with Client(self._cluster.addresses, cluster=CLUSTER) as grid:
            missing, wrong = check(writer, grid)
        written = (writer.acknowledged, len(writer.values))
        self.report.writer = WriterResult(*written, writer.repeated, len(missing), len(wrong))
        if missing:
            self._differs(f"{MAP}: {len(missing):,} acknowledged keys are missing, such as {missing[0]}")
        if wrong:
            self._differs(f"{MAP}: {len(wrong):,} keys lost their last acknowledged write, such as {wrong[0]}")
        if not missing and not wrong:
            self._good(f"all {written[0]:,} acknowledged writes to {written[1]:,} keys, none lost")

    # --- helpers ---------------------------------------------------------------------------------------------------

    def _heading(self, number: int, text: str) -> None:
        self._console.print(f"\n[bold cyan]{number}[/]  [bold]{text}[/]")

    def _good(self, text: str) -> None:
        self._console.print(f"   [green]✓[/] {text}", soft_wrap=True)

    def _differs(self, *lines: str) -> None:
        self.report.differences += lines
        self._show((f"✗ {line}" for line in lines), "red")

    def _show(self, lines: Iterable[str], style: str = "dim") -> None:
        for line in lines:
            self._console.print(f"     {line}", style=style, markup=False, soft_wrap=True)


def _start_spark(folder: Path, stack: ExitStack) -> SparkSession:
    """Start Spark, which ends with the stack; its Java process ends with this one."""
    with _undisturbed(folder / "spark.log"):
        spark = session(f"local[{CORES}]", **{name: text.format(folder=folder) for name, text in SPARK.items()})
    stack.enter_context(suppress(Exception))  # it can be unable to answer
    stack.callback(spark.stop)
    return spark


@contextmanager
def _undisturbed(log: Path) -> Iterator[None]:
    """Let Java start. Its output goes into a file meanwhile, and signals wait until it has started.

    If its program ends before Java has sent its port, Java fails to send it, and then runs for ever.
    """
    with delayed_signals():
        stderr = os.dup(2)
        try:
            with log.open("ab") as file:
                os.dup2(file.fileno(), 2)
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
