from phalanx_native._stores import Stores

class Commands(Stores):
    def carry_out(
        self,
        owned: list[object],
        name: str,
        data: bytes,
        start: int,
        most: int,
        most_bytes: int,
        nil: bytes,
        now: int,
        stamp: int,
        may_write: bool,
        max_key: int,
        max_value: int,
        seed: int,
        log_keys: list[bytes] | None = None,
        log_values: list[bytes] | None = None,
    ) -> tuple[int, bytes, int, int, int, int, int]: ...
