"""Parts of `partition.assignment`: shares of the members, and balancing."""
