"""Ids of requests: who has asked. Calls of the workload have the ids below `JOBS_FROM`."""

from __future__ import annotations

JOBS_FROM = 1 << 39
"""Above this: programs that stage what they write."""
ADMIN_FROM = 1 << 40
"""Above this: an administrator."""
BRIEF_FROM = ADMIN_FROM << 1
"""Above this: the program that writes entries which live for a short time."""
