"""Histories of a few members written as text files: commands, what came of them, and what must hold (docs/scenarios.md)."""
