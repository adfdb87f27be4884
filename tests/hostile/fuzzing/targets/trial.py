"""A target that does the harm that its input names: by it the fuzzer's own tests see that each kind is found."""

from __future__ import annotations

import os
from random import Random

from hostile.fuzzing.target import MIB, Case, Target, Turns


class Trial(Target):
    name = "trial"

    def make(self, rng: Random) -> Case:
        return [rng.randbytes(3)]

    def play(self, case: Case, turns: Turns) -> None:
        what = case[0] if case else b""
        if what == b"end":
            os._exit(3)
        if what == b"fill":
            bytearray(2**31)
        if what == b"take":
            bytearray(b"x") * (32 * MIB)
        while what == b"hold":
            pass


TARGETS: dict[str, type[Target]] = {"trial": Trial}
