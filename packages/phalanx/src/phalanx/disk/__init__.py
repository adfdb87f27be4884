"""The log of a member as bytes: blocks and records from bytes and back, and what a log holds. Pure."""
