"""Phalanx and Spark: maps as DataFrames, archives, the audit, the demo, and their commands. Programs import `phalanx.spark`."""
