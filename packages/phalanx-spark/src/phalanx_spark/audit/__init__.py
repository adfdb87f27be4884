"""What event logs prove: read with Spark, judged by properties that must hold, told as JSON, HTML and an exit status.

schema     the columns of an event, wherever it comes from: a member's log, a simulated history, Parquet
"""
