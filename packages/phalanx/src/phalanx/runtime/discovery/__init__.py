"""How a member finds others: seeds that change, ranges of ports, and clusters beside its own on one host."""
