"""The files of a member's log on disk: its folder, its segments, and the threads that sync and prepare them."""
