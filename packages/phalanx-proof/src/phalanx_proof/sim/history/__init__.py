"""What programs asked for and what they were told: the material of the checkers."""
