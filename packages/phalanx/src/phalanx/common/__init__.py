"""Time-free vocabulary shared by every part: identities, errors, settings, invariants."""
