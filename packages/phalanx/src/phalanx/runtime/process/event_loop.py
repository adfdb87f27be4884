"""The event loop of processes and threads that are a member's own: uvloop where it is installed."""

from __future__ import annotations

import asyncio

try:
    import uvloop
except ImportError:  # there is none for this platform
    new_event_loop = asyncio.new_event_loop
else:
    new_event_loop = uvloop.new_event_loop
