"""The driver of a real member: asyncio, TCP, clocks."""

import logging

from phalanx.runtime.logs.log_text import escape_arguments

escape_arguments(logging.getLogger("phalanx.member"))
