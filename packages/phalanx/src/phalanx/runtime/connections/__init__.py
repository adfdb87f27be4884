"""The connections of a member: those that it opens, those that it accepts, and what is counted and limited there."""
