"""What proves Phalanx: the simulator, the search over histories, the exploration, chaos, and their commands."""
