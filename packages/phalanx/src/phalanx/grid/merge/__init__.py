"""What a member keeps of a cluster that it has left, and how the cluster that it joins takes that in."""
