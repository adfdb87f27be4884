"""What each request does at the owner of its partition."""
