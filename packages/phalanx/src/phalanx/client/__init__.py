"""Programs outside the cluster that use its maps."""
