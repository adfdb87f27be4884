"""What type checkers know of maps: mypy reads this with all tests, and Pyright in `test_typed_maps`. It is never executed."""

from dataclasses import dataclass
from typing import Any, assert_type

import phalanx


@dataclass
class Flight:
    origin: str
    price: float


def of_threads(client: phalanx.Client, member: phalanx.MemberThread) -> None:
    for grid in (client, member):
        flights = grid.map("flights", key=str, value=Flight)
        assert_type(flights["LH 400"], Flight)
        assert_type(flights.get("LH 400"), Flight | None)
        assert_type(flights.get("LH 400", 1), Flight | int)
        assert_type(flights.pop("LH 400"), Flight)
        assert_type(flights.pop("LH 400", None), Flight | None)
        assert_type(flights.get_all(["LH 400"]), dict[str, Flight])
        assert_type(flights.get_and_put("LH 400", Flight("FRA", 1)), Flight | None)
        assert_type(flights.put_if_absent("LH 400", Flight("FRA", 1)), Flight | None)
        assert_type(flights.remove("LH 400"), Flight | None)
        assert_type(flights.setdefault("LH 400", Flight("FRA", 1)), Flight)
        assert_type(list(flights), list[str])
        assert_type(dict(flights.items()), dict[str, Flight])
        assert_type(list(flights.values()), list[Flight])
        flights["LH 400"] = Flight("FRA", 1)
        flights["LH 400"] = "a text"  # type: ignore[assignment]  # pyright: ignore[reportArgumentType]
        flights.put(7, Flight("FRA", 1))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        flights.put_all({"LH 400": 5})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert_type(grid.map("numbers", key=str, value=int).increment("n"), int)
        untyped: phalanx.SyncMap[Any, Any] = grid.map("any")
        untyped[1] = object()


async def of_tasks(client: phalanx.AsyncClient, member: phalanx.Member) -> None:
    for grid in (client, member):
        flights = grid.map("flights", key=str, value=Flight)
        assert_type(await flights.get("LH 400"), Flight | None)
        assert_type(await flights.get("LH 400", 1), Flight | int)
        assert_type(await flights.get_all(["LH 400"]), dict[str, Flight])
        assert_type(await flights.remove("LH 400"), Flight | None)
        assert_type([key async for key in flights.keys()], list[str])  # noqa: SIM118 - it is no dict
        assert_type([value async for value in flights.values()], list[Flight])
        await flights.put("LH 400", 5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert_type(await grid.map("legs", key=tuple[int, str], value=list[Flight]).get((1, "a")), list[Flight] | None)
