"""What a member counts and remembers of its work, for logs, metrics and the console."""
