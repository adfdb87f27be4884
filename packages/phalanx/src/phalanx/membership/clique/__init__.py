"""The search behind `phalanx.membership.connectivity`: largest independent sets of the graph of broken pairs."""
