"""Values, keys and rows as bytes: the format in which they are stored and travel."""
