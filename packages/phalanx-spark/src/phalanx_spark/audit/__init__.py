"""What event logs prove: read with Spark, judged by properties that must hold, reported as JSON, HTML and an exit status."""
