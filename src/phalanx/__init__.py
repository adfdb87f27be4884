"""Phalanx: an in-memory data grid."""
