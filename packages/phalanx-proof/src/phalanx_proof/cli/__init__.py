"""The commands that prove."""
