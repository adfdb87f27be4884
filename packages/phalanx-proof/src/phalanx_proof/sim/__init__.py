"""The simulated world's driver: virtual time, a seeded network, faults, a workload, and checkers that judge from outside.

`run.run(options)` plays one history; everything in it is drawn from the seed, so a seed repeats it byte for byte.
"""
