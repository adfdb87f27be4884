"""How histories are drawn from their seeds: one way for each profile."""
