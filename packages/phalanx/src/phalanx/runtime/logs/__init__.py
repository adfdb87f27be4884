"""What a member writes: its event log, and log lines for people."""
