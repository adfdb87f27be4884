"""A logger whose handlers cannot raise errors in the caller."""

from __future__ import annotations

import logging
from typing import Any


class SafeLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs as the logger of that name does, but ignores errors of handlers and filters.

    A member logs in the middle of its work. Handlers belong to the embedding program: their errors must not end the
    member. A handler that blocks does delay the member; `phalanx member` has no such handler (`cli/log_lines.py`).
    """

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name), None)
        self.dropped = 0
        """How many lines raised an error in a handler."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        try:
            super().log(level, msg, *args, **kwargs)
        except Exception:
            self.dropped += 1
