"""Who is a member and who is master."""
