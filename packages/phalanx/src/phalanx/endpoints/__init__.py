"""The contract of endpoints, which the package `phalanx_protocols` fulfils: protocols of other systems at a member's port."""
