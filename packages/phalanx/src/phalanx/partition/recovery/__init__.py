"""How a new master finds the most recent partition table and mends it, and with which one a cluster goes on that was switched off."""
