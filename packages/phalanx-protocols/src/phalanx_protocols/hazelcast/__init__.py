"""Hazelcast's Open Client Protocol 2: key-value maps for its official clients."""
