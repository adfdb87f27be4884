"""The whole story on one machine, on real data."""
