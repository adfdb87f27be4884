"""The protocol of Redis (RESP2 and RESP3): maps as databases, entries as strings and hashes."""
