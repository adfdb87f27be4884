"""Locks and semaphores at the owner of their key: who holds, who waits, and whose lease has ended."""
