"""How sides of a split cluster diverge, find each other, and become one."""
