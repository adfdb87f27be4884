"""The contract of a machine: inputs, effects, facts, routes. Beneath every machine."""
