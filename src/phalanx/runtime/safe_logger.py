"""A logger whose handlers cannot hurt who logs."""

from __future__ import annotations

import logging
from typing import Any


class SafeLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs as the logger of that name does, and drops what a handler or a filter of the program raises.

    A member logs in the middle of what it does. The logging is the embedding program's: its errors must not become the
    member's. One that blocks does hold up the member; `phalanx member` has none (`cli/log_lines.py`).
    """

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name), None)
        self.dropped = 0
        """Lines that raised an error in a handler."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        try:
            super().log(level, msg, *args, **kwargs)
        except Exception:
            self.dropped += 1
