"""Protocols of other systems that a member serves at its port (`Config.serve`): pure machines, one for each connection."""
