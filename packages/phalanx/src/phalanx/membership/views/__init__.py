"""What only the master does to the member list, and how the list is published."""
