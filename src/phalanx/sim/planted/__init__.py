"""Bugs to plant, to prove that the simulator finds them."""
