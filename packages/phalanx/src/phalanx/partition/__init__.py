"""Partitions: which member holds which replica, and which partition holds a key."""
