"""What all requests share: whether they can be served, once only, in how many turns, and which entries a scan takes."""
