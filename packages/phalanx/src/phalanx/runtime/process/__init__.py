"""Processes of members: how they start, which signals end them, and what an unexpected error does."""
