"""The caller's side of requests, without I/O."""
