"""Measurements beside what a Python user would pick instead, in one run on one machine.

Run from a checkout with `./run bench`. Not part of the wheel: nothing in `phalanx` imports this package.
"""
