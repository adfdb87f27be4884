"""How sides of a split cluster part, find each other, and become one."""
