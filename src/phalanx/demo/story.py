"""The demo from the first member to the last comparison: what is done, in which order, and whether it held.

Each chapter adds what it found to the report. What does not hold becomes a line in `differences`, and the story goes on
where that makes sense, for a later chapter may show why.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.status import Status

from phalanx.client.sync import Client
from phalanx.common.errors import PhalanxError
from phalanx.common.ids import address_of
from phalanx.demo import compare, question
from phalanx.demo.cluster import CLUSTER, DemoCluster, list_seen
from phalanx.demo.dataset import NULL, File, Table, unpack
from phalanx.demo.report import Fall, MapResult, QuestionResult, Report, WriterResult
from phalanx.demo.screen import Screen
from phalanx.demo.spark_process import SparkProcess, Worker, wait
from phalanx.demo.writer import MAP, Writer, check

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WRITE_FOR_S = 1.5
"""How long the writer has a whole cluster before the first kill, and after the last."""

T = TypeVar("T")


class Story:
    """One run."""

    def __init__(self, screen: Screen, folder: Path, report: Report) -> None:
        """`report`: with the sizes set; the run fills in the rest."""
        self._screen = screen
        self._folder = folder
        self.report = report
        self._cluster = DemoCluster(folder, report.backup_count, report.partitions)
        self._files: list[File] = []
        self._csv: dict[str, DataFrame] = {}
        self._grid: dict[str, DataFrame] = {}

    def run(self) -> None:
        """Tell it all. Nothing that was started is left when this returns or raises."""
        report = self.report
        with ExitStack() as stack:
            stack.callback(self._cluster.stop)
            self._spark = SparkProcess(self._folder)
            stack.callback(self._spark.stop)
            try:
                self._start_members()
                self._load()
                writer = self._write_while_members_die()
                self._read_back()
                self._ask()
                self._check_writes(writer)
            except PhalanxError as error:
                self._differs([str(error)])
                for log in sorted(self._folder.glob("member-*.log")):
                    self._screen.block([f"{log.name}: {line}" for line in log.read_text().splitlines()[-3:]])
            finally:
                with self._screen.waiting("stopping members and Spark"):
                    stack.close()
        report.ok = not report.differences
        report.seconds = round(self._screen.seconds(), 1)

    # --- chapters --------------------------------------------------------------------------------------------------

    def _start_members(self) -> None:
        count = self.report.members
        self._screen.heading(1, f"{'One member' if count == 1 else f'{count} members'} on this machine, nothing beside")
        with self._screen.waiting("starting members, and Spark in the meantime"):
            self._cluster.start(count)
            view = self._cluster.wait_list(_nothing)
        self.report.member_list = list_seen(view)
        if count > 1:
            self._screen.good(f"they found each other through one seed, {self._cluster.living[0].address}")
        self._screen.block(view.log_lines())

    def _load(self) -> None:
        screen = self._screen
        screen.heading(2, 'Spark writes five files into five maps: df.write.format("phalanx")')
        with screen.waiting("unpacking the files and starting Spark"):
            unpacking = Worker("unpack").submit(lambda: unpack(self._folder))
            session = self._spark.session(_nothing)
            self._files = wait(unpacking, _nothing)
            self._csv = {
                file.table.name: session.read.csv(
                    str(file.path), file.table.schema, header=True, nullValue=NULL, mode="FAILFAST"
                )
                for file in self._files
            }
            options = {"members": self._cluster.addresses, "cluster": CLUSTER}
            self._grid = {
                file.table.name: session.read.format("phalanx")
                .options(**options, map=file.table.name, key=",".join(file.table.key), ifMissing="empty")
                .schema(self._csv[file.table.name].schema)
                .load()
                for file in self._files
            }
            self._warm_up(self._files[0].table)
        totals = {file.table.name: file.rows for file in self._files}
        with Client(self._cluster.addresses, cluster=CLUSTER) as grid, screen.bars(totals) as bars:
            for file in self._files:
                name = file.table.name
                took_s = self._write(file.table, lambda: bars.update(name, grid.map(name).size()))  # noqa: B023
                self.report.maps.append(MapResult(name, file.rows, round(took_s, 3)))
                bars.update(name, grid.map(name).size(), f"{took_s:.1f} s")
        report = self.report
        report.rows = sum(totals.values())
        took_s = sum(result.write_s for result in report.maps)
        report.rows_per_s_in = round(report.rows / took_s)
        screen.good(f"{report.rows:,} rows in {took_s:.1f} s: {report.rows_per_s_in:,} rows/s")

    def _warm_up(self, table: Table) -> None:
        """Write nothing into a map and read nothing from it: then Spark's Python workers have started."""
        self._run("write nothing", self._writing(self._csv[table.name].limit(0), table))
        self._run("read an empty map", self._grid[table.name].count)

    def _writing(self, frame: DataFrame, table: Table) -> Callable[[], None]:
        """What writes a DataFrame into the table's map."""
        options = {"members": self._cluster.addresses, "cluster": CLUSTER, "map": table.name}
        return frame.write.format("phalanx").options(**options, key=",".join(table.key)).mode("append").save

    def _write(self, table: Table, tick: Callable[[], None]) -> float:
        """Write a file into its map; how many seconds that took."""
        began = time.monotonic()
        self._run(f"write the map {table.name}", self._writing(self._csv[table.name], table), tick)
        return time.monotonic() - began

    def _write_while_members_die(self) -> Writer:
        report, screen = self.report, self._screen
        screen.heading(3, f"A program keeps writing to a sixth map, {MAP}{_killing(report.killed)}")
        writer = Writer(self._cluster.addresses, CLUSTER)
        writer.start()
        with screen.waiting("writing") as status:
            tick = _show_writes(writer, status)
            _pass(WRITE_FOR_S, tick)
            self._cluster.wait_redundant(tick)
        screen.good(f"{writer.acknowledged:,} writes acknowledged, every partition has all its replicas")
        for _ in range(report.killed):
            with screen.waiting("a member was killed") as status:
                fall = self._cluster.kill_largest_owner(writer, _show_writes(writer, status))
            report.falls.append(fall)
            self._tell_fall(fall)
        with screen.waiting("writing") as status:
            _pass(WRITE_FOR_S, _show_writes(writer, status))
            writer.stop()
        if writer.error is not None:
            self._differs([f"the writer gave up: {writer.error}"])
        report.ms_to_write = max((fall.write_ms for fall in report.falls if fall.write_ms is not None), default=None)
        report.ms_to_redundancy = max(
            (fall.redundant_ms for fall in report.falls if fall.redundant_ms is not None), default=None
        )
        return writer

    def _tell_fall(self, fall: Fall) -> None:
        screen, lines = self._screen, fall.member_list.lines if fall.member_list is not None else []
        master = ", the master" if fall.was_master else ""
        owned = f"owned {fall.owned} of {fall.partitions} partitions"
        screen.line(f"SIGKILL to {address_of(fall.member)}{master}; it {owned}", mark="[red]†[/]")
        happened = [
            (fall.list_ms, f"the others agree: {lines[0].rstrip(' [') if lines else ''}"),
            (fall.owners_ms, "every partition has an owner again"),
            (fall.write_ms, "the first write is acknowledged again for a key of the dead member"),
            (fall.redundant_ms, "backups are rebuilt: every partition has all its replicas"),
        ]
        for ms, text in sorted(((ms, text) for ms, text in happened if ms is not None), key=lambda item: item[0]):
            screen.good(f"[cyan]{ms:>6,} ms[/]  {text}")
        screen.block(lines)
        missed = [
            (fall.list_ms, "the others did not agree on a member list without it"),
            (fall.owners_ms, "some partition stayed without a living owner"),
            (fall.write_ms, "no write was acknowledged for a key that it owned"),
            (fall.redundant_ms, "backups were not rebuilt"),
        ]
        self._differs([f"after {fall.member} was killed, {text}" for ms, text in missed if ms is None])

    def _read_back(self) -> None:
        report, screen = self.report, self._screen
        screen.heading(4, 'Spark reads all maps back, spark.read.format("phalanx"), and compares with the files')
        with screen.bars({file.table.name: file.rows for file in self._files}) as bars:
            for file, result in zip(self._files, report.maps, strict=True):
                name = file.table.name

                def tick() -> None:
                    done, tasks = self._spark.progress()
                    bars.update(name, file.rows * done / tasks if tasks else 0)  # noqa: B023

                began = time.monotonic()
                there = self._fingerprint(self._grid[name], file, tick)
                result.read_s, result.rows_read = round(time.monotonic() - began, 3), there.rows
                bars.update(name, there.rows, f"{result.read_s:.1f} s, comparing")
                self._compare(file, result, there)
                verdict = "equal" if result.equal else "[red]differs[/red]"
                bars.update(name, there.rows, f"{result.read_s:.1f} s, {verdict}")
        took_s = sum(result.read_s for result in report.maps)
        report.rows_per_s_out = round(sum(result.rows_read for result in report.maps) / took_s)
        if all(result.equal for result in report.maps):
            screen.good(f"{report.rows:,} rows and every column of all maps equal: {report.rows_per_s_out:,} rows/s")

    def _compare(self, file: File, result: MapResult, there: compare.Fingerprint) -> None:
        name = file.table.name
        here = self._fingerprint(self._csv[name], file, _nothing)
        found = compare.differences(name, here, there)
        if here.rows != file.rows:
            found.append(f"{name}: {file.rows:,} rows in the file, of which Spark read {here.rows:,}")
        result.equal = not found
        if found:
            shown = self._run(
                "look for rows that differ",
                lambda: compare.examples(self._csv[name], self._grid[name], file.table.key),
            )
            self._differs(found + [f"{name}: for example {text}" for text in shown])

    def _ask(self) -> None:
        with self._screen.waiting("asking for the mean arrival delay by airline and by wind speed"):
            grid = self._run("answer from the grid", lambda: question.mean_delays(self._grid))
            files = self._run("answer from the files", lambda: question.mean_delays(self._csv))
        found = question.differing_answers(files, grid)
        sample = question.sample(grid)
        self.report.question = QuestionResult(len(files), not found, sample)
        self._differs(found[:5] + ([f"... and {len(found) - 5} more groups"] if len(found) > 5 else []))
        if not found:
            self._screen.good(
                f"mean arrival delay by airline and wind speed, {len(files)} groups joined from three maps: equal"
            )
            self._screen.block(question.text_table(sample))

    def _check_writes(self, writer: Writer) -> None:
        screen = self._screen
        screen.heading(5, "What was acknowledged is there")
        with (
            screen.waiting("looking up what was acknowledged"),
            Client(self._cluster.addresses, cluster=CLUSTER) as grid,
        ):
            missing, wrong = check(writer, grid)
        result = WriterResult(writer.acknowledged, len(writer.values), writer.repeated, len(missing), len(wrong))
        self.report.writer = result
        if missing:
            self._differs([f"{MAP}: {len(missing):,} acknowledged keys are missing, such as {missing[0]}"])
        if wrong:
            self._differs([f"{MAP}: {len(wrong):,} keys lost their last acknowledged write, such as {wrong[0]}"])
        if not missing and not wrong:
            screen.good(f"all {result.acknowledged:,} acknowledged writes to {result.keys:,} keys, none lost")

    # --- helpers ---------------------------------------------------------------------------------------------------

    def _run(self, what: str, work: Callable[[], T], tick: Callable[[], None] | None = None) -> T:
        return self._spark.run(what, work, tick if tick is not None else _nothing)

    def _fingerprint(self, frame: Any, file: File, tick: Callable[[], None]) -> compare.Fingerprint:
        what = f"read {file.table.name}"
        return self._run(what, lambda: compare.fingerprint(frame, file.table.key), tick)

    def _differs(self, lines: list[str]) -> None:
        self.report.differences += lines
        for line in lines:
            self._screen.bad(line)


def _nothing() -> None:
    """Nothing to show while waiting."""


def _pass(seconds: float, tick: Callable[[], None]) -> None:
    """Let time pass, for the writer."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        tick()
        time.sleep(0.05)


def _show_writes(writer: Writer, status: Status | None) -> Callable[[], None]:
    def tick() -> None:
        if status is not None:
            status.update(f"{writer.acknowledged:,} writes acknowledged")

    return tick


def _killing(count: int) -> str:
    if count == 0:
        return ", and nobody is killed"
    who = "the member that owns most" if count == 1 else f"{count} members, one after the other,"
    return f", while {who} {'is' if count == 1 else 'are'} killed"
