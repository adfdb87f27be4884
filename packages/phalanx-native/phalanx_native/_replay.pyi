from typing import Any

class Follower:
    def __init__(self, replica: type, store: type, copy: type) -> None: ...
    def follow(
        self,
        replicas: dict[int, Any],
        copies: dict[int, Any],
        now: int,
        seed: int,
        body: bytes | bytearray | memoryview,
        start: int,
        most: int,
    ) -> tuple[int, int]: ...
