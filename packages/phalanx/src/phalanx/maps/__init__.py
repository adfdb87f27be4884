"""Maps for programs: shared code of clients and of programs that embed a member."""
