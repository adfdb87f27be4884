"""The grid inside a program that embeds a member: no socket on the way."""
