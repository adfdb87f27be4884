"""What the master alone does to the member list, and how it is published."""
