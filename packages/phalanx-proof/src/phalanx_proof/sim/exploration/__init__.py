"""All histories of a few members within bounds: the real membership, every order of messages and faults."""
