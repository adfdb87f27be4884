"""A member's HTTP port: probes, metrics and answers about the cluster. The extra `phalanx[http]`."""
