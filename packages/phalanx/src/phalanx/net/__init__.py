"""Frames over asyncio connections, shared by members and clients."""
