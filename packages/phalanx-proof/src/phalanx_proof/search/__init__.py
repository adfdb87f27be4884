"""Searching many simulated histories, on the cores of this machine or on Spark: what is played where, and what is kept.

A search is configurations times seeds. Workers play chunks of it (`work`), on a crew (`local_runner`, `on_spark`), as `searching`
hands them out; `store` keeps a row of each history in Parquet and knows which are there already; `findings` sums up.
"""
