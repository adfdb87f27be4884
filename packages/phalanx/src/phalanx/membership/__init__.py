"""Which members there are, and which of them is the master."""
