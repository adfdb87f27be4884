"""The disk of a member as one more replica: how what it holds gets into a complete copy there."""
