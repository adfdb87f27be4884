"""Staged writes in owned partitions: their steps and the checks of these."""
