"""The real world's driver: asyncio, TCP, clocks."""
