"""Maps as programs see them, the same for a client and for the program that embeds a member."""
