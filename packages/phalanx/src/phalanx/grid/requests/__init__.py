"""The request handlers at the owner of a partition."""
