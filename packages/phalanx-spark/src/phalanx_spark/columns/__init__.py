"""Columns of Arrow to stored keys and values, and back, many at a time."""
