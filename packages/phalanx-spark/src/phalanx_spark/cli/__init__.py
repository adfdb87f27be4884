"""The commands that take Spark, or do the same in this process where there is little data."""
