"""The programs that embed the members: what they ask for, and what they note of the answers."""
