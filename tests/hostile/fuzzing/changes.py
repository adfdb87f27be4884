"""Changes to an input that need not know what it means: to its bytes, and to its parts."""

from __future__ import annotations

from random import Random

from hostile.fuzzing.target import Case

ODD_NUMBERS = tuple(
    sign * number
    for number in (0, 1, 2, 7, 15, 16, 31, 32, 127, 128, 255, 256, 4095, 4096, 32767, 32768, 65535, 65536, 2**31 - 1,
                   2**31, 2**32 - 1, 2**53, 2**53 + 1, 2**61 - 1, 2**63 - 1, 2**63, 2**64 - 1)
    for sign in (1, -1)
)  # fmt: skip
LONGEST_PART = 1024 * 1024
LONGEST = 4 * LONGEST_PART
MANY = (2, 3, 8, 64, 300, 1000)
"""How often something is repeated."""


def changed(rng: Random, case: Case, others: Case) -> Case:
    """Return an input with one to four changes. `others`: parts of other inputs."""
    made = list(case)
    for _ in range(1 + int(rng.random() * rng.random() * 4)):
        if not made or rng.random() < 0.25:
            _change_parts(rng, made, others)
        else:
            place = rng.randrange(len(made))
            made[place] = changed_bytes(rng, made[place], others)
    while sum(map(len, made)) > LONGEST:
        made = made[: len(made) // 2]
    return made


def _change_parts(rng: Random, case: Case, others: Case) -> None:
    kind = rng.randrange(4) if case else 3
    place = rng.randrange(len(case) + 1)
    if kind == 0:
        del case[place : place + 1]
    elif kind == 1:
        place %= len(case)
        times = rng.choice(MANY)
        if times * len(case[place]) <= LONGEST_PART:
            case[place:place] = [case[place]] * times
    elif kind == 2:
        other = rng.randrange(len(case))
        place %= len(case)
        case[place], case[other] = case[other], case[place]
    else:
        case.insert(place, rng.choice(others) if others else b"")


def changed_bytes(rng: Random, data: bytes, others: Case = ()) -> bytes:  # type: ignore[assignment]  # only read
    """Return bytes with one change."""
    size = len(data)
    at = rng.randrange(size + 1)
    kind = rng.randrange(9)
    if kind == 0 and size:
        at %= size
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if kind == 1 and size:
        return data[: at % size] + rng.randbytes(1) + data[at % size + 1 :]
    if kind == 2:
        end = at + rng.choice((1, 2, 4, 8, rng.randrange(size + 1)))
        return data[:at] + data[end:]
    if kind == 3:
        return data[:at] + rng.randbytes(rng.choice((1, 2, 4, 8, 16))) + data[at:]
    if kind == 4:
        width = rng.choice((1, 2, 4, 8))
        number = rng.choice(ODD_NUMBERS) % (1 << 8 * width)
        return data[:at] + number.to_bytes(width, rng.choice(("big", "little"))) + data[at + width :]
    if kind == 5:
        number = rng.choice(ODD_NUMBERS)
        return data[:at] + str(number).encode() + data[at + rng.randrange(4) :]
    if kind == 6 and size:
        at %= size
        piece = data[at : at + rng.choice((1, 1, 2, 4, 8, 16, 64))]
        times = rng.choice(MANY) if rng.random() < 0.9 else rng.choice((4_000, 16_000, 60_000))
        return data[:at] + piece * min(times, LONGEST_PART // len(piece)) + data[at:]
    if kind == 7 and others:
        other = rng.choice(others)
        begin = rng.randrange(len(other) + 1)
        return data[:at] + other[begin : begin + rng.randrange(64)] + data[at:]
    return data[:at]
