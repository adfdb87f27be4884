"""The fuzzer: inputs that somebody made to do harm, played against one part of the product at a time (`./run fuzz`).

A *target* makes inputs, plays one, and says which errors are its right answers (`target.py`, `targets/`). The *engine* makes more of
them from those that reached something new, and judges each: what came out, the CPU time of each turn, what the memory grew by
(`engine.py`, `judging.py`). It runs in a *child* with a limit of memory; the *supervisor* ends a child that is held up, and believes
only what a new child finds again (`child.py`, `supervisor.py`).
"""
