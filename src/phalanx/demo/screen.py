"""How the demo looks: headings, a line for each thing that happened, progress bars where there is a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.status import Status
from rich.table import Table

FILE_WIDTH = 120


class Bars:
    """Progress bars, one for each name; without a terminal nothing is drawn until they are full."""

    def __init__(self, progress: Progress | None, tasks: Mapping[str, TaskID], totals: Mapping[str, int]) -> None:
        self._progress, self._tasks, self._totals = progress, tasks, totals

    def update(self, name: str, done: float, note: str = "") -> None:
        """So much is done by now."""
        if self._progress is not None:
            self._progress.update(self._tasks[name], completed=min(done, self._totals[name]), note=note)


class Screen:
    """The story on a terminal, or as plain lines."""

    def __init__(self, *, to_stderr: bool) -> None:
        self.console = Console(stderr=to_stderr, highlight=False)
        self.is_live = self.console.is_terminal
        if not self.is_live:
            self.console.width = FILE_WIDTH
        self._began = time.monotonic()

    def title(self, text: str) -> None:
        """What this is."""
        self.console.print(f"\n[bold]{text}[/]")

    def heading(self, number: int, text: str) -> None:
        """A new chapter."""
        self.console.print(f"\n[bold cyan]{number}[/]  [bold]{text}[/]")

    def line(self, text: str, *, mark: str = " ") -> None:
        """Something that happened."""
        self.console.print(f"   {mark} {text}", soft_wrap=True)

    def good(self, text: str) -> None:
        """Something that held."""
        self.line(text, mark="[green]✓[/]")

    def bad(self, text: str) -> None:
        """Something that did not hold."""
        self.line(f"[red]{text}[/]", mark="[red]✗[/]")

    def block(self, lines: Sequence[str]) -> None:
        """Lines as they are."""
        for line in lines:
            self.console.print(f"     {line}", style="dim", markup=False, soft_wrap=True)

    @contextmanager
    def waiting(self, text: str) -> Iterator[Status | None]:
        """Something is under way whose length is not known."""
        if not self.is_live:
            yield None
            return
        with self.console.status(text, spinner="dots", spinner_style="cyan") as status:
            yield status

    @contextmanager
    def bars(self, totals: Mapping[str, int]) -> Iterator[Bars]:
        """Progress of several things, each with its total."""
        if not self.is_live:
            yield Bars(None, {}, totals)
            return
        width = max(map(len, totals))
        progress = Progress(
            TextColumn("     {task.description}"),
            BarColumn(bar_width=32, complete_style="cyan", finished_style="green"),
            TextColumn("{task.completed:>9,.0f} of {task.total:>9,.0f}"),
            TextColumn("[dim]{task.fields[note]}"),
            console=self.console,
        )
        with progress:
            tasks = {
                name: progress.add_task(f"{name:<{width}}", total=total, note="") for name, total in totals.items()
            }
            yield Bars(progress, tasks, totals)

    def figures(self, figures: Mapping[str, int | None]) -> None:
        """Numbers in a table; None is one that there is not."""
        rows = Table(show_header=False, box=box.ROUNDED, border_style="cyan")
        rows.add_column()
        rows.add_column(justify="right", style="bold")
        for text, figure in figures.items():
            rows.add_row(text, f"{figure:,}" if figure is not None else "-")
        self.console.print()
        self.console.print(Padding(rows, (0, 0, 0, 3)))

    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began
