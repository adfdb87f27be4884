"""The calls of programs and their answers: the material of the checkers."""
