"""Whether this side of a cut may go on: quorum, leases, exclusion by others."""
