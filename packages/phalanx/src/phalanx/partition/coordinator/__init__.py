"""What the master does for the partition table: it alone changes it (DL-04)."""
