"""Interrupts of the process of tests itself."""

import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_are_raised() -> Iterator[None]:
    """Let SIGINT raise `KeyboardInterrupt` where the main thread is, whatever ran in this process before.

    A session of Spark leaves a handler of its own. And where garbage is looked for, an interrupt can come in a callback of that, such as
    Spark and Hypothesis have: Python prints what is raised there, and goes on.
    """
    before, looks = signal.signal(signal.SIGINT, signal.default_int_handler), gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looks:
            gc.enable()
        signal.signal(signal.SIGINT, before)
