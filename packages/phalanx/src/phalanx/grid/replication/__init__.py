"""Owned partitions and their followers: numbered mutations, acknowledgement, copies, and what owners drop by themselves."""
