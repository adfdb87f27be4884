"""Writes and reads keys of one map until its input ends, and tells in one line of JSON what it was told.

The programs in the other folders do the same in other languages. Each key has one writer, which writes growing numbers: what it reads
must be the last acknowledged one, or one whose outcome it does not know.
"""

import json
import sys
import threading
from typing import Any

from hazelcast.client import HazelcastClient
from hazelcast.config import IntType


def main(cluster: str, members: str, prefix: str) -> None:
    client = HazelcastClient(
        cluster_name=cluster, cluster_members=members.split(","), default_int_type=IntType.LONG, invocation_timeout=20
    )
    told = {"acknowledged": 0, "errors": 0, "violations": []}
    shared: Any = client.get_map("shared").blocking()
    over = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    print("ready", flush=True)
    possible: dict[str, list[int | None]] = {f"{prefix}-{index}": [None] for index in range(20)}
    keys = list(possible)

    def check(key: str) -> None:
        found = shared.get(key)
        if found not in possible[key]:
            told["violations"].append(f"{key} is {found}, not one of {possible[key]}")  # type: ignore[attr-defined]

    number = 0
    while not over.is_set():
        key = keys[number % len(keys)]
        possible[key].append(number)
        try:
            shared.put(key, number)
            possible[key] = [number]
            told["acknowledged"] += 1  # type: ignore[operator]
            check(key)
        except Exception:
            told["errors"] += 1  # type: ignore[operator]
        number += 1
    for key in keys:
        check(key)
    print(json.dumps(told), flush=True)
    client.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
