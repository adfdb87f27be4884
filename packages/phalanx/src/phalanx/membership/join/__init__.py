"""How a process becomes a member."""
