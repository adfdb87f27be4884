"""One member: the composition of the membership, partition and grid machines."""
