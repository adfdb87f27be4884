"""Judges of histories: they never call the code that they judge."""
