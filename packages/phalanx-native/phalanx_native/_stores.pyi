from collections.abc import Sequence

class Stores:
    def __init__(self, owned: type, replica: type, store: type) -> None: ...
    def find_values(
        self,
        owned: list[object],
        name: str,
        keys: Sequence[bytes],
        now: int,
        max_bytes: int,
        prefix_bytes: int,
        seed: int,
    ) -> list[bytes | None] | None: ...
    def put_values(
        self,
        owned: list[object],
        name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        prefix: bytes,
        seed: int,
        log_keys: list[bytes] | None = None,
        log_values: list[bytes] | None = None,
    ) -> bool: ...
