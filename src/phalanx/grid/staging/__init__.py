"""What jobs stage in owned partitions, and when its steps are done."""
