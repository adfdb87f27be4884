"""How a new master finds the most recent partition table, and mends it."""
