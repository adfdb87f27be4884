"""Whether this side of a cut can go on: quorum, leases, exclusion by others."""
