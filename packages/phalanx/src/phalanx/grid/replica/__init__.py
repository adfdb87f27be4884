"""What one replica of one partition holds, and how it changes."""
