"""Chaos: real member processes that are killed, paused, stopped and joined while writers keep a ledger."""
