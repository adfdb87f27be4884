"""What blocking programs read values with: a reader that fetches the schemas of Compact objects as it meets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from phalanx.client.blocking.plan_driver import PlanClient, apply_step
from phalanx.common.errors import UnknownSchema
from phalanx.maps.compact_schemas import read_again

T = TypeVar("T")


def learning(client: PlanClient) -> Callable[[str | None, Callable[[bytes], T]], Callable[[bytes], T]]:
    """Return a function of a map's name and a reader of values, which returns such a reader that fetches the schemas that the first
    one lacks. The name is for errors; None: they need none."""

    def of_map(map_name: str | None, read: Callable[[bytes], T]) -> Callable[[bytes], T]:
        def read_value(data: bytes) -> T:
            try:
                return read(data)
            except UnknownSchema as error:
                return apply_step(read_again(client, map_name, error, lambda: read(data)), client)

        return read_value

    return of_map
