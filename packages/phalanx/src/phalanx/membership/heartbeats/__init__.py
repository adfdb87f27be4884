"""What members send by the clock, and what they learn from it."""
