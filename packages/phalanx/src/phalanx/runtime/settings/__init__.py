"""The settings of a member process, from files, the environment and programs."""
