"""The command `phalanx`."""
