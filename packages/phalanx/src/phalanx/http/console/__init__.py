"""The console: a page at `/` of a member's HTTP port, kept up to date by one text that all viewers share."""
