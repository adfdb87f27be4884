"""A crew of processes on this machine."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import Any

from phalanx_proof.search.worker_processes import Done, Made, Work

AHEAD = 2
"""Pieces for each process: one in work, one that waits."""


class ProcessCrew:
    """So many processes, each with an interpreter of its own."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._pool: ProcessPoolExecutor | None = None

    @property
    def cores(self) -> int:
        return self._jobs

    def each(self, function: Callable[[Work], Made], pieces: Iterable[Work]) -> Generator[Done[Work, Made], None, None]:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._jobs, context, initializer=_follow_the_parent)
        pool, waiting = self._pool, iter(pieces)
        under_way: dict[Future[Any], Work] = {}
        try:
            while True:
                for piece in islice(waiting, AHEAD * self._jobs - len(under_way)):
                    under_way[pool.submit(function, piece)] = piece
                if not under_way:
                    return
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    yield self._done(future, under_way.pop(future))
        finally:
            for future in under_way:
                future.cancel()

    def _done(self, future: Future[Any], piece: Work) -> Done[Work, Any]:
        try:
            return Done(piece, future.result())
        except BrokenProcessPool:
            return Done(piece, error="a process that played histories was killed")
        except Exception as error:
            return Done(piece, error=f"{type(error).__name__}: {error}")

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        workers = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                worker.terminate()


def _follow_the_parent() -> None:
    """Leave interrupts to the parent process, and end with it: nobody waits then for what is played here."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
