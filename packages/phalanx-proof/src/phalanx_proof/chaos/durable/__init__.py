"""Restarts of whole clusters: processes that end in every way and come back with their folders, and power cuts."""
