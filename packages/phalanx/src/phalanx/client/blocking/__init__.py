"""The blocking client: its connections, maps, locks and cached functions."""
